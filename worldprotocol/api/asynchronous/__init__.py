"""``AsyncRealm``: the methods of a realm for asyncio.

Every twin is made from the method itself (``twins``), so it has the method's signature and documentation. Plain asyncio
is used and no further library: the engine blocks in databases and in code of users, both of which need threads in any
library, and what asyncio contributes is one future for each call and each wait.
"""
