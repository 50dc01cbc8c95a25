"""What a gateway's request means to the index, and which endpoint it goes to. Pure: no I/O and no clock.

`openai` reads a request's body into a prompt, `models` says which model and adapter of the index its
model name stands for. `endpoints` holds which address belongs to which replica, `refusals` who said
lately that it is too busy, `open_work` what this gateway's requests have an endpoint do; `picking` puts
hint, load and refusals together into a first choice and fallbacks.
"""

from inferencecache.core.gateway.endpoints import Endpoint, EndpointId, Endpoints
from inferencecache.core.gateway.models import ModelNames, NamedModel
from inferencecache.core.gateway.openai import Chat, Prompt, Unreadable, read_prompt
from inferencecache.core.gateway.picking import Pick, pick
from inferencecache.core.gateway.refusals import Refusals

__all__ = [
    "Chat",
    "Endpoint",
    "EndpointId",
    "Endpoints",
    "ModelNames",
    "NamedModel",
    "Pick",
    "Prompt",
    "Refusals",
    "Unreadable",
    "pick",
    "read_prompt",
]
