"""Builds Grafana's own objects with its SDK: from a board of `model` to the JSON that Grafana reads."""

from __future__ import annotations

from grafana_foundation_sdk.builders import bargauge, common, stat, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    Row,
    ThresholdsConfig,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as models
from grafana_foundation_sdk.models import dashboard
from grafana_foundation_sdk.models.dashboard import DashboardLinkType, DataSourceRef, Threshold, ThresholdsMode

from deploy.grafana.dashboards.model import ANNOTATIONS, Annotation, Board, Look, Panel, Query, Site, Unit, Variable

TAG = "recovery"
DATASOURCE = DataSourceRef("prometheus", "${datasource}")
"""The data source that is chosen above the panels. With a single Prometheus there is no choice."""
HEIGHTS = {Look.STAT: 4}
HEIGHT = 8

Drawn = timeseries.Panel | stat.Panel | bargauge.Panel


def encoded(board: Board, site: Site) -> str:
    """Return the dashboard as JSON. The same board always gives the same text."""
    return f"{JSONEncoder(sort_keys=True, indent=2).encode(built(board, site))}\n"


def built(board: Board, site: Site) -> dashboard.Dashboard:
    """Return the dashboard. Panels are numbered in their order."""
    builder = (
        Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .readonly()
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .with_variable(DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .link(_dashboards_link())
    )
    for variable in board.variables:
        builder = builder.with_variable(_variable(variable))
    for link in _site_links(site):
        builder = builder.link(link)
    number = 0
    for section in board.sections:
        number += 1
        builder = builder.with_row(Row(section.title).id(number))
        for panel in section.panels:
            number += 1
            builder = builder.with_panel(_panel(panel, site).id(number))
    result = builder.build()
    result.annotations = dashboard.AnnotationContainer([_AnnotationQuery(annotation) for annotation in ANNOTATIONS])
    return result


def _panel(panel: Panel, site: Site) -> Drawn:
    builder = _builder(panel.look)
    steps = [Threshold(None, panel.below), *(Threshold(level.value, level.colour) for level in panel.levels)]
    builder = (
        builder.title(panel.title)
        .description(panel.description)
        .datasource(DATASOURCE)
        .unit(panel.unit.value)
        .min(0)
        .span(panel.width)
        .height(HEIGHTS.get(panel.look, HEIGHT))
        .thresholds(ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        .links([*_panel_links(panel, site)])
    )
    if panel.texts:
        texts = {str(value): dashboard.ValueMappingResult(text) for value, text in panel.texts.items()}
        builder = builder.mappings([dashboard.ValueMap(texts)])
    if panel.unit is Unit.NUMBER:
        builder = builder.decimals(0)
    if panel.unit is Unit.SHARE:
        builder = builder.max(1)  # otherwise the longest series would fill its bar
    if panel.nothing:
        builder = builder.no_value(panel.nothing)
    for index, query in enumerate(panel.queries):
        builder = builder.with_target(_target(query, chr(ord("A") + index), panel.look))
    return builder


def _builder(look: Look) -> Drawn:
    if look is Look.STAT:
        reduce_options = common.ReduceDataOptions().calcs(["lastNotNull"])
        return stat.Panel().color_mode(models.BigValueColorMode.VALUE).reduce_options(reduce_options)
    if look is Look.BARS:
        reduce_options = common.ReduceDataOptions().calcs(["lastNotNull"])
        horizontal = bargauge.Panel().orientation(models.VizOrientation.HORIZONTAL)
        return horizontal.display_mode(models.BarGaugeDisplayMode.BASIC).reduce_options(reduce_options)
    legend = common.VizLegendOptions().show_legend(True).display_mode(models.LegendDisplayMode.LIST)
    graph = timeseries.Panel().legend(legend.placement(models.LegendPlacement.BOTTOM).calcs([])).line_width(1)
    if look is Look.STACK:
        return graph.fill_opacity(40).stacking(common.StackingConfig().mode(models.StackingMode.NORMAL))
    return graph.fill_opacity(5)


def _target(query: Query, ref: str, look: Look) -> Dataquery:
    dataquery = Dataquery().expr(query.expr).ref_id(ref).datasource(DATASOURCE)
    if query.legend:
        dataquery = dataquery.legend_format(query.legend)
    return dataquery.instant() if look in (Look.STAT, Look.BARS) else dataquery.range()


def _variable(variable: Variable) -> QueryVariable:
    """Several values may be chosen. At first all are chosen, including series without the label."""
    return (
        QueryVariable(variable.name)
        .label(variable.label)
        .datasource(DATASOURCE)
        .query({"query": variable.values, "refId": variable.name})
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(dashboard.VariableOption(text="All", value="$__all", selected=True))
    )


def _dashboards_link() -> DashboardLink:
    """Return links to all our dashboards, which keep the chosen variables and time."""
    others = DashboardLink("Recovery").type(DashboardLinkType.DASHBOARDS).tags([TAG])
    return others.as_dropdown(False).include_vars(True).keep_time(True)


def _panel_links(panel: Panel, site: Site) -> list[DashboardLink]:
    """Return a panel's links: to the dashboard with details, with the same time and variables, and to the site's
    pages."""
    details_url = f"/d/{panel.to}?${{__url_time_range}}&${{__all_variables}}"
    links = [DashboardLink("More about this").type(DashboardLinkType.LINK).url(details_url)]
    if site.docs and panel.runbook:
        links.append(_link("What to do", f"{site.docs}/runbooks.md#{panel.runbook.lower()}"))
    if site.console:
        links.append(_link("Console", site.console))
    return links


def _site_links(site: Site) -> list[DashboardLink]:
    docs = [_link("Documentation", f"{site.docs}/metrics.md")] if site.docs else []
    return docs + ([_link("Console", site.console)] if site.console else [])


def _link(title: str, url: str) -> DashboardLink:
    return DashboardLink(title).type(DashboardLinkType.LINK).url(url).target_blank(True)


class _AnnotationQuery(dashboard.AnnotationQuery):
    """An annotation from a Prometheus query, whose fields are missing in the SDK's model."""

    def __init__(self, annotation: Annotation) -> None:
        super().__init__(annotation.name, DATASOURCE, icon_color=annotation.colour, expr=annotation.expr)
        self._texts = {"titleFormat": annotation.title, "textFormat": annotation.text}

    def to_json(self) -> dict[str, object]:
        """Return the fields as Grafana stores them."""
        return {**super().to_json(), **self._texts, "step": "15s", "useValueForTime": False}
