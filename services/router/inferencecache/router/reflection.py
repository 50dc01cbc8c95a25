"""Server reflection, for tools that have no copy of the contract [WIRE-221].

The protocol exists under two names, v1alpha and v1, with the same messages; the gRPC package brings
the first. The second is served by the same code, under a descriptor that is the first one's, renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2

ALPHA: Final = "grpc.reflection.v1alpha.ServerReflection"
STABLE: Final = "grpc.reflection.v1.ServerReflection"


def reflection_handlers(services: Sequence[str]) -> tuple[grpc.GenericRpcHandler, ...]:
    """Handlers of both names; they list `services` and themselves."""
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(_renamed(reflection_pb2.DESCRIPTOR.serialized_pb))
    servicer = reflection.aio.ReflectionServicer((*services, ALPHA, STABLE), pool=pool)
    call = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return tuple(
        grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": call}) for name in (ALPHA, STABLE)
    )


def _renamed(serialized: bytes) -> bytes:
    file = FileDescriptorProto.FromString(serialized)
    file.name = file.name.replace("v1alpha", "v1")
    file.package = file.package.replace("v1alpha", "v1")
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(".v1alpha.", ".v1.")
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(".v1alpha.", ".v1.")
            method.output_type = method.output_type.replace(".v1alpha.", ".v1.")
    return file.SerializeToString()
