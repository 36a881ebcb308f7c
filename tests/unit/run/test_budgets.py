"""Batch budgets of runs that share the workers."""

from __future__ import annotations

from types import SimpleNamespace

from virnucpro.run.recipe import smallest_budgets


def test_the_smallest_budget_of_each_name_counts_whichever_run_has_it():
    budgets = {"a": 4, "b": 7}, {"a": 5}, {"b": 6, "c": 1}
    runs = [SimpleNamespace(state=SimpleNamespace(budgets=own)) for own in budgets]
    assert smallest_budgets(runs) == {"a": 4, "b": 6, "c": 1}
