// SPDX-License-Identifier: Apache-2.0
/*
 * served.c - the adapters of a model, by their names
 *
 * Any thread looks names up; one lock protects lists and references.  It is held for a few
 * instructions, or for the text of a list: no thread reads files under it.
 */
#include <stdlib.h>

#include <kvmm/log.h>

#include "runtime/engine/engine.h"
#include "runtime/server/served.h"

void served_init(struct served_adapters *t)
{
	memset(t, 0, sizeof(*t));
	pthread_mutex_init(&t->lock, NULL);
	list_init(&t->all);
	list_init(&t->dead);
}

static void one_free(struct served_adapter *a)
{
	adapter_free(a->adapter);
	free(a->dir);
	free(a);
}

static void free_list(struct list *head)
{
	while (!list_empty(head)) {
		struct served_adapter *a = list_entry(head->next, struct served_adapter, list);

		list_del(&a->list);
		one_free(a);
	}
}

void served_free(struct served_adapters *t)
{
	free_list(&t->all);
	free_list(&t->dead);
	pthread_mutex_destroy(&t->lock);
}

bool served_is_name(const char *name, size_t len)
{
	size_t i = 0;

	while (i < len && (u8)name[i] >= 0x20 && name[i] != 0x7f)
		i++;
	return len && i == len && len <= SERVED_NAME_MAX;
}

static struct served_adapter *find(const struct served_adapters *t, const char *name, size_t len)
{
	struct list *it, *tmp;

	list_for_each(&t->all, it, tmp) {
		struct served_adapter *a = list_entry(it, struct served_adapter, list);

		if (strlen(a->name) == len && !memcmp(a->name, name, len))
			return a;
	}
	return NULL;
}

/* Give a reference back, under the lock. */
static void drop(struct served_adapter *a)
{
	struct served_adapters *t = a->in;

	if (--a->refs)
		return;
	list_add_tail(&t->dead, &a->list);
	WRITE_ONCE(t->nr_dead, t->nr_dead + 1);
}

/* Take the name away, under the lock. */
static void unname(struct served_adapter *a)
{
	list_del(&a->list);
	a->in->nr--;
	drop(a);
}

/* A new adapter, with the reference of its name but in no list. */
static struct served_adapter *one_new(struct served_adapters *t, const char *name,
				      const char *dir)
{
	struct served_adapter *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->dir = strdup(dir);
	if (!a->dir) {
		free(a);
		return NULL;
	}
	a->in = t;
	a->refs = 1;
	memcpy(a->name, name, strnlen(name, SERVED_NAME_MAX));
	return a;
}

static int insert(struct served_adapters *t, struct served_adapter *a, bool replace)
{
	struct served_adapter *old = find(t, a->name, strlen(a->name));

	if (old && !replace)
		return -EEXIST;
	if (!old && t->nr >= SERVED_MAX)
		return -ENOSPC;
	if (old)
		unname(old);
	a->number = ++t->numbers;
	list_add_tail(&t->all, &a->list);
	t->nr++;
	return 0;
}

int served_add(struct served_adapters *t, const char *name, const char *dir,
	       struct adapter *adapter, bool replace)
{
	struct served_adapter *a = one_new(t, name, dir);
	int ret;

	if (!a)
		return -ENOMEM;
	a->adapter = adapter;
	pthread_mutex_lock(&t->lock);
	ret = insert(t, a, replace);
	pthread_mutex_unlock(&t->lock);
	if (ret) {
		a->adapter = NULL;
		one_free(a);
	}
	return ret;
}

int served_reserve(struct served_adapters *t, const char *name, const char *dir)
{
	return served_add(t, name, dir, NULL, false);
}

void served_log(const char *name, const struct adapter_info *info)
{
	pr_info("adapter %s: loaded from %s: rank %u, %.1f MB", name, info->dir, info->rank,
		(double)info->bytes / 1e6);
}

/* The lists do not change while the model is being loaded. */
int served_load_reserved(struct served_adapters *t, const struct model *model, u32 max_rank,
			 struct model_error *err)
{
	struct list *it, *tmp;

	list_for_each(&t->all, it, tmp) {
		struct served_adapter *a = list_entry(it, struct served_adapter, list);
		struct adapter *adapter;
		int ret = adapter_load(model, a->dir, max_rank, &adapter, err);

		if (ret)
			return ret;
		pthread_mutex_lock(&t->lock);
		a->adapter = adapter;
		pthread_mutex_unlock(&t->lock);
		served_log(a->name, adapter_info(adapter));
	}
	return 0;
}

int served_remove(struct served_adapters *t, const char *name, size_t len)
{
	struct served_adapter *a;

	pthread_mutex_lock(&t->lock);
	a = find(t, name, len);
	if (a)
		unname(a);
	pthread_mutex_unlock(&t->lock);
	return a ? 0 : -ENOENT;
}

struct served_adapter *served_get(struct served_adapters *t, const char *name, size_t len)
{
	struct served_adapter *a;

	pthread_mutex_lock(&t->lock);
	a = find(t, name, len);
	if (a)
		a->refs++;
	pthread_mutex_unlock(&t->lock);
	return a;
}

void served_put(struct served_adapter *a)
{
	struct served_adapters *t = a ? a->in : NULL;

	if (!a)
		return;
	pthread_mutex_lock(&t->lock);
	drop(a);
	pthread_mutex_unlock(&t->lock);
}

void served_sweep(struct served_adapters *t, struct engine *e)
{
	struct list *it, *tmp, gone;

	if (!READ_ONCE(t->nr_dead))
		return;
	list_init(&gone);
	pthread_mutex_lock(&t->lock);
	list_for_each(&t->dead, it, tmp) {
		struct served_adapter *a = list_entry(it, struct served_adapter, list);

		/* The steps that are open now may still use it. */
		if (e && a->adapter && engine_adapter_forget(e, a->adapter))
			continue;
		list_del(&a->list);
		list_add_tail(&gone, &a->list);
		WRITE_ONCE(t->nr_dead, t->nr_dead - 1);
	}
	pthread_mutex_unlock(&t->lock);
	free_list(&gone);
}

void served_each(struct served_adapters *t,
		 void (*fn)(void *arg, const struct served_adapter *a), void *arg)
{
	struct list *it, *tmp;

	pthread_mutex_lock(&t->lock);
	list_for_each(&t->all, it, tmp)
		fn(arg, list_entry(it, struct served_adapter, list));
	pthread_mutex_unlock(&t->lock);
}
