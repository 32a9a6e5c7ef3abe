"""An object store with the interface of S3 that runs in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def object_store(bucket: str) -> Iterator[Any]:
    """Yield a client of a store with an empty bucket; s3:// leads there meanwhile, in child processes, too."""
    s3fs = pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    import boto3

    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()  # those of another store
        client = boto3.client("s3")
        client.create_bucket(Bucket=bucket)
        yield client
    server.stop()
