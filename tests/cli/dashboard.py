#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Runs each query of a Grafana dashboard against a Prometheus.

dashboard.py URL FILE
    Asks until each query of FILE has at least one series, for 40 seconds at most. Prints the
    number of queries, or the first one that fails or stays empty. Grafana's $__rate_interval
    is two minutes here. Also checks that each panel uses the dashboard's data source.
"""
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

url, path = sys.argv[1:]
with open(path) as file:
    dashboard = json.load(file)
assert [v["type"] for v in dashboard["templating"]["list"]] == ["datasource"]
targets = []
for panel in dashboard["panels"]:
    assert panel["title"] and panel["description"] and panel["targets"], panel
    for target in panel["targets"]:
        for part in panel, target:
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, part
        targets.append((panel["title"], target["expr"].replace("$__rate_interval", "2m")))


def series(expression):
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?{query}") as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        sys.exit(f"{expression}: {error.read().decode()}")


until = time.monotonic() + 40
for title, expression in targets:
    while not series(expression):
        if time.monotonic() > until:
            sys.exit(f"{title}: {expression} has no series")
        time.sleep(0.5)
print(len(targets))
