"""Parts of the lease API: handles, errors, and calls from asyncio."""
