"""Analyses of a recorded log: recheck, backtest, counterfactual."""
