// SPDX-License-Identifier: Apache-2.0
/*
 * blaslt.c - products by cuBLASLt, in fast mode
 *
 * The library stores matrices by columns: its A is W, transposed, its B is x, and
 * its D is y, each without a copy.  It has several algorithms for a shape, and the
 * one that it proposes first is often not the fastest.  So the first time that a
 * shape comes, each of the proposals is timed, and the fastest is kept.  A shape is
 * N, K, and M rounded up to a power of two: prompts have any length, and one
 * choice is good for all lengths in between.
 *
 * Timing waits for the GPU, which is not allowed while a step is recorded.  A shape
 * that comes first in a recording gets the library's first proposal, and is timed
 * when it comes again outside of a recording.  Steps run once before they are
 * recorded, so that is rare.
 *
 * If the chosen algorithm does not take an M of its shape, the library is asked
 * again for that very M.  A shape that the library cannot compute is not tried
 * again; the caller uses a kernel of our own.  An error of this library is not an
 * error of the context; if the GPU itself failed, the driver reports it soon.
 *
 * The algorithms' workspace is one piece of memory for each context, allocated at
 * the start, since graphs contain its address.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/log.h>

#include "kernels/cuda/blaslt.h"

#define WORKSPACE	(32u << 20)
#define MAX_SHAPES	512u
#define MAX_PROPOSALS	8
#define TIMED_RUNS	3u
#define BUCKET_MIN	32u

/* The library's functions; opened once a process, and never closed. */
static struct {
#define x(name, args)	lt_status (*name) args;
	BLASLT_FUNCTIONS(x)
#undef x
} api;
static bool usable;
static pthread_once_t once = PTHREAD_ONCE_INIT;

enum choice {
	GUESSED,	/* the first proposal, until it can be timed */
	TIMED,
	NEVER,		/* the library cannot compute it */
};

struct shape {
	u32		bucket;
	u32		n;
	u32		k;
	enum choice	choice;
	struct lt_algo		algo;
};

/**
 * struct blaslt - the library's state of one context
 * @desc:  the operation: A transposed, f32 sums
 * @pref:  limit of the workspace of proposals
 * @memory: workspace of @bytes, or NULL
 * @from, @to: events for timing
 * @shape: the @nr_shapes shapes that came so far
 */
struct blaslt {
	struct lt_handle	*handle;
	struct lt_desc		*desc;
	struct lt_pref		*pref;
	void		*memory;
	size_t		bytes;
	CUevent		from, to;
	struct shape	shape[MAX_SHAPES];
	u32		nr_shapes;
};

/* The matrices of one call, as the library describes them. */
struct layouts {
	struct lt_layout	*w, *x, *y;
};

static void *open_library(void)
{
	static const char *const names[] = {
		"libcublasLt.so.13", "libcublasLt.so.12",
	};
	const char *named = getenv("KVMM_CUBLASLT");
	void *lib = NULL;
	u32 i;

	if (named && *named)
		return strcmp(named, "none") ?
		       dlopen(named, RTLD_NOW | RTLD_LOCAL) : NULL;
	for (i = 0; i < ARRAY_SIZE(names) && !lib; i++)
		lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	return lib;
}

static void load(void)
{
	void *lib = open_library();
	bool all = lib;

	if (!lib) {
		pr_info("no cuBLASLt (libcublasLt.so.13 or .12): the products of long batches use kernels of our own, which are slower");
		return;
	}
#define x(name, args)							\
	api.name = (lt_status (*) args)(uintptr_t)dlsym(lib,		\
						"cublasLt" #name);	\
	all = all && api.name;
	BLASLT_FUNCTIONS(x)
#undef x
	usable = all;
	if (!all)
		pr_warn("cuBLASLt lacks functions, and is not used: install that of CUDA 12 or 13");
}

static bool describe(struct blaslt *lt)
{
	const int trans = LT_OP_T;
	const size_t bytes = lt->bytes;

	return !api.Create(&lt->handle) &&
	       !api.MatmulDescCreate(&lt->desc, LT_COMPUTE_32F, LT_R_32F) &&
	       !api.MatmulDescSetAttribute(lt->desc, LT_DESC_TRANSA, &trans,
					   sizeof(trans)) &&
	       !api.MatmulPreferenceCreate(&lt->pref) &&
	       !api.MatmulPreferenceSetAttribute(lt->pref,
						 LT_PREF_MAX_WORKSPACE,
						 &bytes, sizeof(bytes));
}

struct blaslt *blaslt_open(struct cuda_ctx *c)
{
	struct blaslt *lt;

	pthread_once(&once, load);
	if (!usable || !cuda_enter(c))
		return NULL;
	lt = calloc(1, sizeof(*lt));
	if (!lt)
		return NULL;
	lt->memory = cuda_mem_alloc((struct kern_ctx *)(void *)c, WORKSPACE);
	lt->bytes = lt->memory ? WORKSPACE : 0;
	if (describe(lt) && !c->cu->EventCreate(&lt->from, 0) &&
	    !c->cu->EventCreate(&lt->to, 0))
		return lt;
	pr_warn("cuBLASLt cannot be started, and is not used");
	blaslt_close(c, lt);
	return NULL;
}

void blaslt_close(struct cuda_ctx *c, struct blaslt *lt)
{
	if (!lt)
		return;
	/* Errors are ignored: there is no way to handle them. */
	if (lt->from)
		(void)!c->cu->EventDestroy(lt->from);
	if (lt->to)
		(void)!c->cu->EventDestroy(lt->to);
	if (lt->pref)
		(void)!api.MatmulPreferenceDestroy(lt->pref);
	if (lt->desc)
		(void)!api.MatmulDescDestroy(lt->desc);
	if (lt->handle)
		(void)!api.Destroy(lt->handle);
	cuda_mem_free((struct kern_ctx *)(void *)c, lt->memory);
	free(lt);
}

static void layouts_put(struct layouts *l)
{
	if (l->w)
		(void)!api.MatrixLayoutDestroy(l->w);
	if (l->x)
		(void)!api.MatrixLayoutDestroy(l->x);
	if (l->y)
		(void)!api.MatrixLayoutDestroy(l->y);
}

static bool layouts_get(const struct blaslt_gemm *g, struct layouts *l)
{
	*l = (struct layouts){ NULL };
	if (!api.MatrixLayoutCreate(&l->w, LT_R_16BF, g->k, g->n, g->k) &&
	    !api.MatrixLayoutCreate(&l->x, LT_R_16BF, g->k, g->m, g->x_ld) &&
	    !api.MatrixLayoutCreate(&l->y, LT_R_32F, g->n, g->m, g->y_ld))
		return true;
	layouts_put(l);
	return false;
}

static bool multiply(struct cuda_ctx *c, struct blaslt *lt,
		     const struct blaslt_gemm *g, const struct layouts *l,
		     const struct lt_algo *algo)
{
	const float one = 1, zero = 0;

	return !api.Matmul(lt->handle, lt->desc, &one, g->w, l->w, g->x, l->x,
			   &zero, g->y, l->y, g->y, l->y, algo, lt->memory,
			   lt->bytes, c->stream);
}

static int propose(struct blaslt *lt, const struct layouts *l, int most,
		   struct lt_result *r)
{
	int nr = 0;

	if (api.MatmulAlgoGetHeuristic(lt->handle, lt->desc, l->w, l->x, l->y,
				       l->y, lt->pref, most, r, &nr))
		return 0;
	return min(nr, most);
}

static bool fits(const struct blaslt *lt, const struct lt_result *r)
{
	return !r->state && r->workspace <= lt->bytes;
}

/* Choose the first proposal that can be used. */
static bool guess(struct blaslt *lt, struct shape *s, const struct lt_result *r,
		  int nr)
{
	int i;

	for (i = 0; i < nr; i++) {
		if (!fits(lt, &r[i]))
			continue;
		s->algo = r[i].algo;
		s->choice = GUESSED;
		return true;
	}
	s->choice = NEVER;
	return false;
}

/* Milliseconds of TIMED_RUNS products by @r; negative: @r cannot be used. */
static float time_one(struct cuda_ctx *c, struct blaslt *lt,
		      const struct blaslt_gemm *g, const struct layouts *l,
		      const struct lt_result *r)
{
	float ms = -1;
	CUresult e;
	u32 i;

	/* Run it once before: code is loaded at first use. */
	if (!fits(lt, r) || !multiply(c, lt, g, l, &r->algo))
		return -1;
	e = c->cu->EventRecord(lt->from, c->stream);
	for (i = 0; i < TIMED_RUNS && !e; i++)
		if (!multiply(c, lt, g, l, &r->algo))
			return -1;
	e = e ? e : c->cu->EventRecord(lt->to, c->stream);
	e = e ? e : c->cu->EventSynchronize(lt->to);
	e = e ? e : c->cu->EventElapsedTime(&ms, lt->from, lt->to);
	if (e)
		cuda_fail(c, "a product cannot be timed", e);
	return e ? -1 : ms;
}

/* Choose the fastest proposal; y has the product then. */
static void choose(struct cuda_ctx *c, struct blaslt *lt,
		   const struct blaslt_gemm *g, const struct layouts *l,
		   struct shape *s)
{
	struct lt_result r[MAX_PROPOSALS];
	const int nr = propose(lt, l, MAX_PROPOSALS, r);
	float ms, best = -1;
	int i;

	if (c->step == CUDA_STEP_RECORD) {
		guess(lt, s, r, nr);
		return;
	}
	s->choice = NEVER;
	for (i = 0; i < nr && !c->err; i++) {
		ms = time_one(c, lt, g, l, &r[i]);
		if (ms < 0 || (best >= 0 && ms >= best))
			continue;
		best = ms;
		s->algo = r[i].algo;
		s->choice = TIMED;
	}
}

static u32 bucket(u32 m)
{
	return max((u32)roundup_pow_of_two(m), BUCKET_MIN);
}

/* The shape's entry; a new one is GUESSED without an algorithm; NULL: no room. */
static struct shape *shape_of(struct blaslt *lt, const struct blaslt_gemm *g,
			      bool *is_new)
{
	const u32 b = bucket(g->m);
	struct shape *s;

	for (s = lt->shape; s < lt->shape + lt->nr_shapes; s++)
		if (s->bucket == b && s->n == g->n && s->k == g->k)
			return s;
	if (lt->nr_shapes == MAX_SHAPES)
		return NULL;
	lt->nr_shapes++;
	*s = (struct shape){ .bucket = b, .n = g->n, .k = g->k };
	*is_new = true;
	return s;
}

/* The choice does not take this M: use the library's proposal for this very M. */
static bool multiply_anew(struct cuda_ctx *c, struct blaslt *lt,
			  const struct blaslt_gemm *g, const struct layouts *l)
{
	struct shape s;
	struct lt_result r;

	return guess(lt, &s, &r, propose(lt, l, 1, &r)) &&
	       multiply(c, lt, g, l, &s.algo);
}

bool blaslt_gemm(struct cuda_ctx *c, struct blaslt *lt,
		 const struct blaslt_gemm *g)
{
	struct layouts l;
	bool is_new = false, done = false;
	struct shape *s = shape_of(lt, g, &is_new);

	if ((s && s->choice == NEVER) || !cuda_enter(c) || !layouts_get(g, &l))
		return false;
	if (s && (is_new || (s->choice == GUESSED &&
			     c->step != CUDA_STEP_RECORD)))
		choose(c, lt, g, &l, s);
	if (s && s->choice != NEVER)
		done = multiply(c, lt, g, &l, &s->algo);
	if (!done && !c->err)
		done = multiply_anew(c, lt, g, &l);
	layouts_put(&l);
	return done;
}

void blaslt_count(const struct blaslt *lt, u32 *chosen, u32 *timed)
{
	u32 i;

	*chosen = *timed = 0;
	for (i = 0; i < lt->nr_shapes; i++) {
		*chosen += lt->shape[i].choice != NEVER;
		*timed += lt->shape[i].choice == TIMED;
	}
}
