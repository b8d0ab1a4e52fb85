"""The pictures of dashboards in docs/: a real cluster, a real Prometheus, and a renderer of the panels' queries, since
there is no Grafana where they are made. `make pictures` makes them anew; matplotlib is needed for that alone."""
