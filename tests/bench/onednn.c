// SPDX-License-Identifier: Apache-2.0
/*
 * onednn.c - matrix products of oneDNN, the peer of ours
 *
 * The library is looked for at run time and used through the C interface of
 * its version 2, which Debian 12 has, so a build needs nothing of it.  Of its
 * structures only the sizes matter here, and buffers larger than any of them
 * stand in; the numbers of its enumerations are below.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "tests/bench/onednn.h"

#define LIBRARY		"libdnnl.so.2"
#define DESC_BYTES	8192

/* From its dnnl_types.h, version 2. */
enum {
	ENGINE_CPU	= 1,
	TYPE_BF16	= 2,
	TYPE_F32	= 3,
	TAG_ANY		= 1,
	TAG_AB		= 3,
	TAG_BA		= 22,
	QUERY_WEIGHTS	= 131,
	ARG_SRC		= 1,
	ARG_DST		= 17,
	ARG_WEIGHTS	= 33,
	STREAM_DEFAULT	= 1,
};

union desc {
	u8	bytes[DESC_BYTES];
	u64	align;
};

struct exec_arg {
	int	arg;
	void	*memory;
};

/* name, arguments; all return an int, 0 for success */
#define DNNL_CALLS(x)							\
	x(engine_create, (void **engine, int kind, size_t index))	\
	x(stream_create, (void **stream, void *engine, unsigned flags))	\
	x(stream_wait, (void *stream))					\
	x(memory_desc_init_by_tag, (union desc *md, int nr,		\
				    const s64 *dims, int type, int tag)) \
	x(matmul_desc_init, (union desc *d, const void *src,		\
			     const void *weights, const void *bias,	\
			     const void *dst))				\
	x(primitive_desc_create, (void **pd, const void *desc,		\
				  const void *attr, void *engine,	\
				  const void *hint))			\
	x(primitive_desc_destroy, (void *pd))				\
	x(primitive_create, (void **primitive, const void *pd))	\
	x(primitive_execute, (void *primitive, void *stream, int nr,	\
			      const struct exec_arg *args))		\
	x(primitive_destroy, (void *primitive))			\
	x(memory_create, (void **memory, const void *md, void *engine,	\
			  void *data))					\
	x(memory_destroy, (void *memory))

#define x(name, args)	static int (*dnnl_##name) args;
DNNL_CALLS(x)
#undef x
static const void *(*dnnl_primitive_desc_query_md)(const void *pd, int what,
						   int index);
static size_t (*dnnl_memory_desc_get_size)(const void *md);
static void (*set_threads)(int nr);

static void *engine, *stream;

struct onednn_gemm {
	void		*primitive;
	struct exec_arg	args[3];
	void		*packed;
};

const char *onednn_open(void)
{
	void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	bool all = true;

	if (!lib)
		return LIBRARY " is not here: install libdnnl2";
#define x(name, args)							\
	dnnl_##name = (int (*) args)dlsym(lib, "dnnl_" #name);		\
	all = all && dnnl_##name;
	DNNL_CALLS(x)
#undef x
	dnnl_primitive_desc_query_md = (const void *(*)(const void *, int, int))
		dlsym(lib, "dnnl_primitive_desc_query_md");
	dnnl_memory_desc_get_size = (size_t (*)(const void *))
		dlsym(lib, "dnnl_memory_desc_get_size");
	set_threads = (void (*)(int))dlsym(lib, "omp_set_num_threads");
	if (!all || !dnnl_primitive_desc_query_md ||
	    !dnnl_memory_desc_get_size || !set_threads)
		return LIBRARY " lacks some calls: install libdnnl2 2.6";
	if (dnnl_engine_create(&engine, ENGINE_CPU, 0) ||
	    dnnl_stream_create(&stream, engine, STREAM_DEFAULT))
		return LIBRARY " cannot make an engine: is this CPU too old?";
	return NULL;
}

void onednn_threads(u32 nr)
{
	set_threads(nr);
}

/* Small numbers, as bf16 and as f32: never subnormal, never infinite. */
static void *made_up(size_t bytes)
{
	u16 *p = aligned_alloc(64, ALIGN_UP(bytes, 64));
	u32 r = 1;
	size_t i;

	for (i = 0; p && i < bytes / 2; i++) {
		r = r * 1664525 + 1013904223;
		p[i] = 0x3e00 | (r >> 16 & 0x81ff);
	}
	return p;
}

static void *memory(const void *md, const void *data)
{
	void *m = NULL;

	return dnnl_memory_create(&m, md, engine, (void *)data) ? NULL : m;
}

static int make_primitive(struct onednn_gemm *g, void *pd, const union desc *md,
			  const void *x, const void *w, float *y)
{
	const void *weights = dnnl_primitive_desc_query_md(pd, QUERY_WEIGHTS, 0);

	if (!w) {
		g->packed = made_up(dnnl_memory_desc_get_size(weights));
		w = g->packed;
	}
	g->args[0] = (struct exec_arg){ ARG_SRC, memory(&md[0], x) };
	g->args[1] = (struct exec_arg){ ARG_WEIGHTS, memory(weights, w) };
	g->args[2] = (struct exec_arg){ ARG_DST, memory(&md[2], y) };
	return w ? dnnl_primitive_create(&g->primitive, pd) : -1;
}

struct onednn_gemm *onednn_gemm_create(u32 m, u32 n, u32 k, bool bf16,
				       bool packed, const void *x,
				       const void *w, float *y)
{
	const s64 src[] = { m, k }, weights[] = { k, n }, dst[] = { m, n };
	const int type = bf16 ? TYPE_BF16 : TYPE_F32;
	struct onednn_gemm *g = calloc(1, sizeof(*g));
	static union desc md[3], desc;
	void *pd = NULL;

	if (!g)
		return NULL;
	if (dnnl_memory_desc_init_by_tag(&md[0], 2, src, type, TAG_AB) ||
	    dnnl_memory_desc_init_by_tag(&md[1], 2, weights, type,
					 packed ? TAG_ANY : TAG_BA) ||
	    dnnl_memory_desc_init_by_tag(&md[2], 2, dst, TYPE_F32, TAG_AB) ||
	    dnnl_matmul_desc_init(&desc, &md[0], &md[1], NULL, &md[2]) ||
	    dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL) ||
	    make_primitive(g, pd, md, x, packed ? NULL : w, y)) {
		onednn_gemm_destroy(g);
		g = NULL;
	}
	if (pd)
		dnnl_primitive_desc_destroy(pd);
	return g;
}

void onednn_gemm_run(struct onednn_gemm *g)
{
	dnnl_primitive_execute(g->primitive, stream, ARRAY_SIZE(g->args),
			       g->args);
	dnnl_stream_wait(stream);
}

void onednn_gemm_destroy(struct onednn_gemm *g)
{
	u32 i;

	if (!g)
		return;
	if (g->primitive)
		dnnl_primitive_destroy(g->primitive);
	for (i = 0; i < ARRAY_SIZE(g->args); i++)
		if (g->args[i].memory)
			dnnl_memory_destroy(g->args[i].memory);
	free(g->packed);
	free(g);
}
