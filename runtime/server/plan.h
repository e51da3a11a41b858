/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan.h - which models are served, and under which names
 */
#ifndef RUNTIME_SERVER_PLAN_H
#define RUNTIME_SERVER_PLAN_H

#include "runtime/server/server.h"

#define PLAN_NAME_MAX	256u

/**
 * struct plan_model - one model, judged before anything is loaded
 * @name:   by which it is served
 * @base:   last part of the folder's path
 * @domain: the daemon's, where it is not @base; else ""
 */
struct plan_model {
	char	name[PLAN_NAME_MAX];
	char	base[PLAN_NAME_MAX];
	char	domain[PLAN_NAME_MAX];
};

/**
 * plan_models() - names, and whether there is something at all
 * @plan: gets @o->nr_models of them
 * @err:  with SERVER_NO_MODEL: negative errno
 *
 * Two folders of one name in different places would share the daemon's domain;
 * these get the names by which they are served for domains.
 *
 * Return: 0, or -1 after one line, with @end.
 */
int __must_check plan_models(const struct server_opts *o,
			     struct plan_model *plan, enum server_end *end,
			     int *err);

#endif /* RUNTIME_SERVER_PLAN_H */
