"""Commands of ``worldctl`` that a server executes: what each needs, who may run it, and how its output is sent."""
