// SPDX-License-Identifier: Apache-2.0
/*
 * quantized.c - make tensors of other tensors while loading
 *
 * A list says which tensors are made of which.  All of them lie in one piece of memory,
 * which gets its pages as they are written.  Each thread makes one tensor after the
 * other, and gives the mapped pages of its sources back, so there are never two copies
 * of the weights in memory.  Then the list of the checkpoint has the made tensors in
 * place of their sources, and the rest of the loader sees a checkpoint like any other.
 *
 * quantized_folder.c makes the list of a quantized folder, quantized_make.c that of a
 * folder which is quantized now.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/model/quantized_internal.h"

#define MADE_ALIGN	64ull

/* State of the threads. */
struct quant_run {
	struct quant_list		*l;
	const struct model_progress	*progress;
	atomic_uint			next;
	_Atomic u64			done;
	u64				room;	/* bytes of a thread's room */
	atomic_bool			failed;	/* no memory for a room */
	_Atomic(const struct quant_make *) bad;	/* see fill() */
};

int quant_list_open(struct quant_list *l, struct ckpt *c)
{
	memset(l, 0, sizeof(*l));
	l->c = c;
	/* A made tensor has a source, which is no source of another one. */
	l->makes = calloc(c->nr_tensors + 1, sizeof(*l->makes));
	l->gone = calloc(c->nr_tensors + 1, sizeof(*l->gone));
	free(c->made);
	free(c->sources);
	c->sources = NULL;
	c->nr_sources = 0;
	c->made = calloc(c->nr_tensors + 1, sizeof(*c->made));
	return l->makes && l->gone && c->made ? 0 : -ENOMEM;
}

void quant_list_close(struct quant_list *l)
{
	free(l->makes);
	free(l->gone);
}

static int cmp_name(const void *key, const void *t)
{
	return strcmp(key, (*(const struct st_tensor * const *)t)->name);
}

const struct st_tensor *quant_list_take(struct quant_list *l, const char *name)
{
	const struct ckpt *c = l->c;
	const struct st_tensor **hit;

	hit = bsearch(name, c->tensors, c->nr_tensors, sizeof(*c->tensors),
		      cmp_name);
	if (!hit)
		return NULL;
	l->gone[hit - c->tensors] = true;
	return *hit;
}

struct quant_make *quant_list_add(struct quant_list *l, const char *name,
				  enum kern_dtype type, const u64 *shape,
				  u32 nr_dims)
{
	struct quant_make *m = &l->makes[l->nr];
	struct st_tensor *t = &l->c->made[l->nr];
	u32 i;

	t->name = strdup(name);
	if (!t->name)
		return NULL;
	l->nr++;
	t->path = l->c->dir;
	t->dtype = type == KERN_F32 ? ST_F32 : ST_BLOCKS;
	t->blocks = type;
	t->straight = true;
	t->nr_elems = 1;
	for (i = 0; i < nr_dims; i++)
		t->nr_elems *= t->shape[t->nr_dims++] = shape[i];
	t->nr_bytes = kern_row_bytes(type, t->nr_elems);
	t->begin = l->bytes;
	l->bytes += ALIGN_UP(t->nr_bytes, MADE_ALIGN);
	*m = (struct quant_make){
		.t = t, .cols = shape[nr_dims - 1],
		.rows = t->nr_elems / shape[nr_dims - 1],
	};
	return m;
}

/* Give the pages of the sources of @m back. */
static void drop_sources(struct ckpt *c, const struct quant_make *m)
{
	ckpt_drop(c, m->codes);
	if (m->scales)
		ckpt_drop(c, m->scales);
	if (m->zeros)
		ckpt_drop(c, m->zeros);
}

static void make_one(struct quant_run *r, const struct quant_make *m, void *room)
{
	u64 row;

	for (row = 0; row < m->rows; row += QUANT_ROWS)
		if (!m->fill(m, row, min((u64)QUANT_ROWS, m->rows - row), room))
			atomic_store(&r->bad, m);
	drop_sources(r->l->c, m);
	atomic_fetch_add(&r->done, ALIGN_UP(m->t->nr_bytes, MADE_ALIGN));
}

/* Make tensors until none is left; the first thread tells the progress. */
static void run_some(struct quant_run *r, const struct model_progress *progress)
{
	void *room = malloc(r->room);
	u32 i;

	if (!room) {
		atomic_store(&r->failed, true);
		return;
	}
	while ((i = atomic_fetch_add(&r->next, 1)) < r->l->nr) {
		make_one(r, &r->l->makes[i], room);
		model_progress_tell(progress, atomic_load(&r->done), r->l->bytes);
	}
	free(room);
}

static void *run_thread(void *arg)
{
	run_some(arg, NULL);
	return NULL;
}

static void run_threads(struct quant_run *r, u32 nr)
{
	pthread_t *threads = calloc(nr, sizeof(*threads));
	u32 i, started = 0;

	/* Without threads the caller does all of the work. */
	for (i = 1; threads && i < min(nr, r->l->nr); i++)
		if (!pthread_create(&threads[started], NULL, run_thread, r))
			started++;
	run_some(r, r->progress);
	for (i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	if (!atomic_load(&r->failed))
		model_progress_tell(r->progress, r->l->bytes, r->l->bytes);
}

/* Memory for all made tensors; without memory their addresses only count. */
static int list_map(struct quant_list *l, bool judge, struct model_error *err)
{
	struct ckpt *c = l->c;
	u32 i;

	if (!judge && l->bytes) {
		c->made_map = mmap(NULL, l->bytes, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				   -1, 0);
		if (c->made_map == MAP_FAILED) {
			c->made_map = NULL;
			return model_fail(err, -ENOMEM, "%s: no memory for %llu "
					  "MB of weights: use a smaller model",
					  c->dir,
					  (unsigned long long)(l->bytes >> 20));
		}
		c->made_bytes = l->bytes;
		(void)!madvise(c->made_map, l->bytes, MADV_HUGEPAGE);
	}
	for (i = 0; i < l->nr; i++)
		c->made[i].data = (void *)((uintptr_t)c->made_map +
					   c->made[i].begin);
	return 0;
}

static int list_fill(struct quant_list *l, const struct quantized_opts *o,
		     struct model_error *err)
{
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);
	struct quant_run r = { .l = l, .progress = o->progress };
	const struct quant_make *bad;
	u32 i;

	for (i = 0; i < l->nr; i++)
		r.room = max(r.room, QUANT_ROWS * QUANT_ROOM(l->makes[i].cols));
	run_threads(&r, o->nr_threads ? o->nr_threads : max(cores, 1l));
	if (atomic_load(&r.failed))
		return model_fail_errno(err, -ENOMEM, l->c->dir, "quantization");
	bad = atomic_load(&r.bad);
	return !bad ? 0 :
	       model_fail(err, -EINVAL, "%s: tensor " MODEL_NAME_FMT ": has NaN, "
			  "infinity or a number above %g: leave out "
			  "--quantization, or copy the model again",
			  bad->codes->path, bad->codes->name, (double)QUANT_MOST);
}

/* Put the made tensors into the list of the checkpoint, in place of the others. */
static int list_replace(struct quant_list *l, struct model_error *err)
{
	struct ckpt *c = l->c;
	u32 i, n = 0;

	c->sources = calloc(c->nr_tensors + 1, sizeof(*c->sources));
	if (!c->sources)
		return model_fail_errno(err, -ENOMEM, c->dir, "tensors");
	for (i = 0; i < c->nr_tensors; i++) {
		if (l->gone[i])
			c->sources[c->nr_sources++] = c->tensors[i];
		else
			c->tensors[n++] = c->tensors[i];
	}
	for (i = 0; i < l->nr; i++)
		c->tensors[n++] = &c->made[i];
	c->nr_tensors = n;
	c->nr_made = l->nr;
	memset(c->copied, 0, n * sizeof(*c->copied));
	ckpt_sort(c);
	for (i = 1; i < n; i++)
		if (!strcmp(c->tensors[i - 1]->name, c->tensors[i]->name))
			return model_fail(err, -EINVAL, "%s: tensor "
					  MODEL_NAME_FMT ": is there as it is, "
					  "and quantized: copy the model again",
					  c->dir, c->tensors[i]->name);
	return 0;
}

int quant_list_run(struct quant_list *l, const struct quantized_opts *o,
		   struct model_error *err)
{
	int ret;

	ret = list_map(l, o->judge, err);
	if (!ret && !o->judge)
		ret = list_fill(l, o, err);
	return ret ? ret : list_replace(l, err);
}
