"""Jobs: verify, recheck, what-if and backtest of a realm, each in a process of its own."""
