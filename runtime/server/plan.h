/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - the models to serve and their names
 */
#ifndef RUNTIME_SERVER_PLAN_H
#define RUNTIME_SERVER_PLAN_H

#include "runtime/server/server.h"

#define PLAN_NAME_MAX	256u

/**
 * struct plan_model - one model, checked before anything is loaded
 * @name:   its name for clients
 * @base:   last part of the folder's path
 * @domain: name of the daemon's domain if it is not @base; else ""
 */
struct plan_model {
	char	name[PLAN_NAME_MAX];
	char	base[PLAN_NAME_MAX];
	char	domain[PLAN_NAME_MAX];
};

/**
 * plan_models() - choose names, and check that the folders have a model
 * @plan: gets @o->nr_models of them
 * @err:  with SERVER_NO_MODEL: negative errno
 *
 * Two folders with the same name in different places would share a domain, so
 * the domains of these models get the models' names for clients.
 *
 * Return: 0, or -1 with @end, after one line in the log.
 */
int __must_check plan_models(const struct server_opts *o,
			     struct plan_model *plan, enum server_end *end,
			     int *err);

/**
 * plan_adapters() - read --lora, and check that the folders have an adapter
 * @plan: the models, from plan_models()
 * @wish: gets @o->nr_adapters of them
 *
 * Names are of one model or adapter in the whole server.
 *
 * Return: as plan_models().
 */
int __must_check plan_adapters(const struct server_opts *o, const struct plan_model *plan,
			       struct adapter_wish *wish, enum server_end *end, int *err);

#endif /* RUNTIME_SERVER_PLAN_H */
