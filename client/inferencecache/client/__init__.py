"""Where is a prompt's prefix cached? A client of routers, for gateways of one's own.

A lookup never fails: whatever goes wrong, within its deadline or at it, is a hint without replicas, and
the gateway routes as it would without us. Connections are kept between lookups.

```python
from inferencecache.client import Client, Prompt

client = Client("router-1:9090", "router-2:9090", tenant="team-a")
hint = client.lookup("llama", Prompt.of_tokens(token_ids), deadline_s=0.02)
replica = hint.replica or my_own_choice()
```

`AsyncClient` is the same with `await`.
"""

from inferencecache.client.asynchronous import AsyncClient
from inferencecache.client.blocking import Client
from inferencecache.client.hint import (
    FOLLOWED,
    INVALID_REQUEST,
    TIMEOUT,
    UNREACHABLE,
    Hint,
    RankedReplica,
)
from inferencecache.client.prompt import Prompt

__all__ = [
    "FOLLOWED",
    "INVALID_REQUEST",
    "TIMEOUT",
    "UNREACHABLE",
    "AsyncClient",
    "Client",
    "Hint",
    "Prompt",
    "RankedReplica",
]
