"""Operations that act: intents and source events, effects of workers, calls of tools, and sessions of agents."""
