/* SPDX-License-Identifier: Apache-2.0 */
/*
 * served.h - the adapters of a model, by their names
 *
 * A request names an adapter as its model, and has a reference to it until the request is
 * freed.  An adapter that lost its name is freed after its last request, by the thread of the
 * engine.
 */
#ifndef RUNTIME_SERVER_SERVED_H
#define RUNTIME_SERVER_SERVED_H

#include <pthread.h>

#include <kvmm/list.h>

#include "runtime/model/adapter.h"

#define SERVED_NAME_MAX	128u	/* bytes of a name */
#define SERVED_MAX	256u	/* adapters of a model that have a name */

struct engine;

/**
 * struct adapter_wish - an adapter of the command line
 * @model: number of its model
 */
struct adapter_wish {
	u32		model;
	char		name[SERVED_NAME_MAX + 1];
	const char	*dir;
};

/**
 * struct served_adapter - an adapter under a name
 * @adapter:  NULL: its model is still being loaded
 * @number:   of this adapter alone, never 0; another one of the same name has another
 * @refs:     requests that have it, plus one while it has its name
 * @requests: requests that the engine was given
 */
struct served_adapter {
	struct list	list;
	struct served_adapters	*in;
	char		name[SERVED_NAME_MAX + 1];
	char		*dir;
	struct adapter	*adapter;
	u64		number;
	u32		refs;
	u64		requests;
};

/**
 * struct served_adapters - the adapters of a model
 * @lock:    protects the other members, and those of the adapters but for @requests
 * @all:     those with a name, in the order of loading
 * @dead:    those that may be freed, @nr_dead of them
 * @numbers: numbers that were given
 */
struct served_adapters {
	pthread_mutex_t	lock;
	struct list	all;
	u32		nr;
	struct list	dead;
	u32		nr_dead;
	u64		numbers;
};

void served_init(struct served_adapters *t);
/* served_free() - free all; no request has one, and there is no engine */
void served_free(struct served_adapters *t);

/* served_is_name() - 1 to SERVED_NAME_MAX bytes without control characters */
bool served_is_name(const char *name, size_t len);

/**
 * served_reserve() - give a name to an adapter that will be loaded with its model
 *
 * Context: before there are other threads.
 * Return: 0, -ENOMEM, or -ENOSPC.
 */
int __must_check served_reserve(struct served_adapters *t, const char *name, const char *dir);

/**
 * served_load_reserved() - load the adapters that only have a name yet
 *
 * Return: 0, or the error of adapter_load() with @err.
 */
int __must_check served_load_reserved(struct served_adapters *t, const struct model *model,
				      u32 max_rank, struct model_error *err);

/**
 * served_add() - give a name to an adapter that is loaded
 * @replace: take the name from another adapter if one has it
 *
 * Return: 0 with @adapter taken over; -EEXIST: the name is in use; -ENOSPC: there are
 * SERVED_MAX; -ENOMEM.
 */
int __must_check served_add(struct served_adapters *t, const char *name, const char *dir,
			    struct adapter *adapter, bool replace);

/* served_log() - log that an adapter is loaded, and what @info says of it */
void served_log(const char *name, const struct adapter_info *info);

/* served_remove() - take the name from an adapter: 0, or -ENOENT */
int served_remove(struct served_adapters *t, const char *name, size_t len);

/* served_get() - a new reference to the adapter of this name, or NULL */
struct served_adapter *served_get(struct served_adapters *t, const char *name, size_t len);

/* served_put() - give a reference back; NULL is allowed */
void served_put(struct served_adapter *a);

/**
 * served_sweep() - free adapters that have neither a name nor a request
 * @e: the engine; NULL: there is none
 *
 * Context: the thread of the engine.
 */
void served_sweep(struct served_adapters *t, struct engine *e);

/* served_each() - call @fn for each adapter with a name; it must not wait */
void served_each(struct served_adapters *t,
		 void (*fn)(void *arg, const struct served_adapter *a), void *arg);

#endif /* RUNTIME_SERVER_SERVED_H */
