# SPDX-License-Identifier: Apache-2.0
"""A storage backend for SGLang's HiCache: pages of KV as objects of kvmm.

    --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{
        "backend_name": "kvmm", "module_path": "kvmm.sglang",
        "class_name": "KvmmHiCacheStorage", "interface_v1": 1}'

SGLang is imported when the class is first used: it wants a subclass of its own class.
"""
import ctypes
import errno
import logging

from ._guard import Guarded, place_of
from .errors import Error
from .objects import Objects

log = logging.getLogger(__name__)


class PageStore(Guarded):
    """What HiCache calls.  Errors of kvmm are a miss, since they would end HiCache's threads."""

    def __init__(self, storage_config, kwargs=None):
        config = dict(getattr(storage_config, "extra_config", None) or {})
        self.timeout = float(config.get("timeout", 5))
        self._config = config
        self._ranks = storage_config
        self._page_bytes = config.get("page_bytes")
        self._begin(log)
        self.mem_pool_host = None

    # ---- the attachment ----

    def register_mem_pool_host(self, mem_pool_host):
        """The pool says how many bytes a page has: attach."""
        self.mem_pool_host = mem_pool_host
        self._page_bytes = mem_pool_host.get_size_per_token() * mem_pool_host.page_size
        self._store()

    def _rank(self, name, default=0):
        return getattr(self._ranks, name, default)

    def _model(self):
        """All that decides the bits of a page, but for the rank."""
        pool = self.mem_pool_host
        names = ("tp_size", "pp_size", "pp_rank", "attn_cp_size", "is_mla_model")
        return {"engine": "sglang", "model": self._rank("model_name", None),
                "page_bytes": self._page_bytes,
                "page_size": getattr(pool, "page_size", None),
                "layout": getattr(pool, "layout", None), "dtype": getattr(pool, "dtype", None),
                **{name: self._rank(name) for name in names},
                "revision": self._config.get("revision", "")}

    def _attach(self):
        if not self._page_bytes:
            raise Error("the size of a page is not known before register_mem_pool_host()")
        domain = self._config.get("domain", "sglang")
        if self._rank("pp_size", 1) > 1:        # stages may have pages of other sizes
            domain = f"{domain}.pp{self._rank('pp_rank')}"
        return self._open(domain, self._page_bytes, self._model(), self._config)

    # ---- keys and places ----

    def _key(self, key):
        """A key of this rank.  With latent attention all ranks of a tensor have one page."""
        words = [key]
        if not self._rank("is_mla_model", False):
            words.append(f"tp{self._rank('tp_rank')}")
        if self._rank("attn_cp_size", 1) > 1:
            words.append(f"cp{self._rank('attn_cp_rank')}")
        return " ".join(words)

    def _pages(self, nr, host_indices):
        """For each page of HiCache's pool its parts: [(address, bytes, owner)]."""
        addresses, sizes = self.mem_pool_host.get_page_buffer_meta(host_indices)
        if nr == 0 or len(addresses) % nr:
            raise ValueError(f"{len(addresses)} parts of {nr} pages")
        each = len(addresses) // nr
        parts = [(a, s, None) for a, s in zip(addresses, sizes)]
        return [parts[i * each:(i + 1) * each] for i in range(nr)]

    def _places(self, values, sizes, writable):
        """Likewise for tensors, buffers or addresses: pages of one part."""
        sizes = sizes or [None] * len(values)
        return [[place_of(v, s, writable)] for v, s in zip(values, sizes)]

    def _check_pages(self, pages):
        for page in pages:
            size = sum(part[1] for part in page)
            if size != self._page_bytes:
                raise ValueError(f"a page of {size} bytes, not of {self._page_bytes}")

    # ---- copies ----

    def _save(self, store, keys, pages):
        """Store pages.  Return: for each, is it stored?"""
        self._check_pages(pages)
        names, at, done = [self._key(key) for key in keys], {}, {}
        for name, page in zip(names, pages):
            at.setdefault(name, page)       # a key may be twice in a batch
        once = list(at)
        for first in range(0, len(once), store.batch_objects):
            with store.create(once[first:first + store.batch_objects], self.timeout) as items:
                for item in items:
                    if item.held:
                        self._write(item, at[item.key])
            done |= {i.key: i.held or i.status == errno.EEXIST for i in items}
        return [done[name] for name in names]

    def _write(self, item, page):
        to = item.address
        for address, size, _ in page:
            ctypes.memmove(to, address, size)
            to += size

    def _load(self, store, keys, pages):
        """Copy objects into pages.  Return: for each, was it there in time?"""
        self._check_pages(pages)
        names, found = [self._key(key) for key in keys], []
        for first in range(0, len(names), store.batch_objects):
            with store.get(names[first:first + store.batch_objects], self.timeout) as items:
                for item, page in zip(items, pages[first:]):
                    if item.held:
                        self._read(item, page)
            found += [item.held for item in items]
        return found

    def _read(self, item, page):
        source = item.address
        for address, size, _ in page:
            ctypes.memmove(address, source, size)
            source += size

    # ---- the interface of HiCache ----

    def batch_get_v1(self, keys, host_indices, extra_info=None):
        """Pages into HiCache's pool.  Return: a bool for each."""
        if not keys:
            return []
        pages = self._pages(len(keys), host_indices)
        return self._guarded(self._load, keys, pages) or [False] * len(keys)

    def batch_set_v1(self, keys, host_indices, extra_info=None):
        """Pages of HiCache's pool are stored.  Return: a bool for each."""
        if not keys:
            return []
        pages = self._pages(len(keys), host_indices)
        return self._guarded(self._save, keys, pages) or [False] * len(keys)

    def batch_get(self, keys, target_locations=None, target_sizes=None):
        """Pages into tensors, buffers or addresses.  Return: each of them, or None."""
        if not keys:
            return []
        pages = self._places(target_locations, target_sizes, True)
        found = self._guarded(self._load, keys, pages) or [False] * len(keys)
        return [t if f else None for t, f in zip(target_locations, found)]

    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        """Store all.  Return: are all stored?"""
        if not keys:
            return True
        values = target_locations if values is None else values
        pages = self._places(values, target_sizes, False)
        return all(self._guarded(self._save, keys, pages) or [False])

    def get(self, key, target_location=None, target_sizes=None):
        return self.batch_get([key], [target_location], [target_sizes])[0]

    def set(self, key, value=None, target_location=None, target_sizes=None):
        data = target_location if value is None else value
        return self.batch_set([key], [data], None, [target_sizes])

    def exists(self, key):
        return self.batch_exists([key]) == 1

    def batch_exists(self, keys, extra_info=None):
        """How many pages from the first on are there?"""
        tiers = self._guarded(Objects.exists, [self._key(key) for key in keys]) or []
        return tiers.index(None) if None in tiers else len(tiers)

    def clear(self):
        """Not possible: other processes may use the objects."""
        log.warning("kvmm: the store is not cleared, its limits drop what is not used")


_made = {}


def __getattr__(name):
    if name != "KvmmHiCacheStorage":
        raise AttributeError(f"module kvmm.sglang has no attribute {name}")
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

    if HiCacheStorage not in _made:
        _made[HiCacheStorage] = type(name, (PageStore, HiCacheStorage),
                                     {"__module__": __name__, "__doc__": PageStore.__doc__})
    return _made[HiCacheStorage]
