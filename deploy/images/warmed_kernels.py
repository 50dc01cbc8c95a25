"""Lets Numba read kernels that were compiled when the image was built, from a file system it cannot write."""

from numba.core.caching import InTreeCacheLocator


class WarmedCacheLocator(InTreeCacheLocator):
    """Beside the source, without asking whether something may be written there."""

    def ensure_cache_path(self) -> None:
        """Whoever builds the image has made the folder."""
