"""Grafana's own objects, by its SDK: from a board of `model` to the JSON that Grafana reads."""

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
"""The one that is chosen above the panels; with one Prometheus there is nothing to choose."""
HEIGHTS = {Look.STAT: 4}
HEIGHT = 8

Drawn = timeseries.Panel | stat.Panel | bargauge.Panel


def encoded(board: Board, site: Site) -> str:
    """The dashboard as JSON: the same text for the same board."""
    return f"{JSONEncoder(sort_keys=True, indent=2).encode(built(board, site))}\n"


def built(board: Board, site: Site) -> dashboard.Dashboard:
    """The dashboard. Panels have the numbers of their order."""
    made = (
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
        .link(_to_others())
    )
    for variable in board.variables:
        made = made.with_variable(_variable(variable))
    for link in _elsewhere(site):
        made = made.link(link)
    number = 0
    for section in board.sections:
        number += 1
        made = made.with_row(Row(section.title).id(number))
        for panel in section.panels:
            number += 1
            made = made.with_panel(_panel(panel, site).id(number))
    whole = made.build()
    whole.annotations = dashboard.AnnotationContainer([_Marks(one) for one in ANNOTATIONS])
    return whole


def _panel(panel: Panel, site: Site) -> Drawn:
    drawn = _drawn(panel.look)
    steps = [Threshold(None, panel.below), *(Threshold(level.value, level.colour) for level in panel.levels)]
    drawn = (
        drawn.title(panel.title)
        .description(panel.description)
        .datasource(DATASOURCE)
        .unit(panel.unit.value)
        .min(0)
        .span(panel.width)
        .height(HEIGHTS.get(panel.look, HEIGHT))
        .thresholds(ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        .links([*_leads(panel, site)])
    )
    if panel.texts:
        texts = {str(value): dashboard.ValueMappingResult(text) for value, text in panel.texts.items()}
        drawn = drawn.mappings([dashboard.ValueMap(texts)])
    if panel.unit is Unit.NUMBER:
        drawn = drawn.decimals(0)
    if panel.unit is Unit.SHARE:
        drawn = drawn.max(1)  # else a bar is as long as the longest
    if panel.nothing:
        drawn = drawn.no_value(panel.nothing)
    for place, query in enumerate(panel.queries):
        drawn = drawn.with_target(_target(query, chr(ord("A") + place), panel.look))
    return drawn


def _drawn(look: Look) -> Drawn:
    if look is Look.STAT:
        reduced = common.ReduceDataOptions().calcs(["lastNotNull"])
        return stat.Panel().color_mode(models.BigValueColorMode.VALUE).reduce_options(reduced)
    if look is Look.BARS:
        reduced = common.ReduceDataOptions().calcs(["lastNotNull"])
        horizontal = bargauge.Panel().orientation(models.VizOrientation.HORIZONTAL)
        return horizontal.display_mode(models.BarGaugeDisplayMode.BASIC).reduce_options(reduced)
    legend = common.VizLegendOptions().show_legend(True).display_mode(models.LegendDisplayMode.LIST)
    graph = timeseries.Panel().legend(legend.placement(models.LegendPlacement.BOTTOM).calcs([])).line_width(1)
    if look is Look.STACK:
        return graph.fill_opacity(40).stacking(common.StackingConfig().mode(models.StackingMode.NORMAL))
    return graph.fill_opacity(5)


def _target(query: Query, ref: str, look: Look) -> Dataquery:
    asked = Dataquery().expr(query.expr).ref_id(ref).datasource(DATASOURCE)
    if query.legend:
        asked = asked.legend_format(query.legend)
    return asked.instant() if look in (Look.STAT, Look.BARS) else asked.range()


def _variable(variable: Variable) -> QueryVariable:
    """More than one may be chosen; at first all are, those without the label as well."""
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


def _to_others() -> DashboardLink:
    """To all dashboards of ours, with what is chosen."""
    others = DashboardLink("Recovery").type(DashboardLinkType.DASHBOARDS).tags([TAG])
    return others.as_dropdown(False).include_vars(True).keep_time(True)


def _leads(panel: Panel, site: Site) -> list[DashboardLink]:
    """To the dashboard that tells more, with the same time and choices; and to what the site has."""
    more = f"/d/{panel.to}?${{__url_time_range}}&${{__all_variables}}"
    links = [DashboardLink("More about this").type(DashboardLinkType.LINK).url(more)]
    if site.docs and panel.runbook:
        links.append(_link("What to do", f"{site.docs}/runbooks.md#{panel.runbook.lower()}"))
    if site.console:
        links.append(_link("Console", site.console))
    return links


def _elsewhere(site: Site) -> list[DashboardLink]:
    docs = [_link("Documentation", f"{site.docs}/metrics.md")] if site.docs else []
    return docs + ([_link("Console", site.console)] if site.console else [])


def _link(title: str, url: str) -> DashboardLink:
    return DashboardLink(title).type(DashboardLinkType.LINK).url(url).target_blank(True)


class _Marks(dashboard.AnnotationQuery):
    """An annotation by a query of Prometheus's, whose fields the SDK's model does not have."""

    def __init__(self, annotation: Annotation) -> None:
        super().__init__(annotation.name, DATASOURCE, icon_color=annotation.colour, expr=annotation.expr)
        self._texts = {"titleFormat": annotation.title, "textFormat": annotation.text}

    def to_json(self) -> dict[str, object]:
        """As Grafana keeps it."""
        return {**super().to_json(), **self._texts, "step": "15s", "useValueForTime": False}
