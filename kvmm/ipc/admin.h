/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin.h - answers on the admin socket
 */
#ifndef KVMM_IPC_ADMIN_H
#define KVMM_IPC_ADMIN_H

#include <kvmm/types.h>

#include "kvmm/core/core.h"
#include "kvmm/ipc/conn/conn.h"

struct daemon;

/**
 * struct admin_name - a domain, as an operator named it; see admin_name.c
 * @is_shown: it is @shown's, which was found by it
 * @nr_named: domains that it could be
 * @dom:      the one
 * @view:     what the core said of it
 */
struct admin_name {
	const char		*name;
	bool			is_shown;
	struct core_domain_view	shown;
	u32			nr_named;
	u32			dom;
	struct core_domain_view	view;
};

void admin_name_init(struct daemon *d, struct admin_name *n, const char *name);
bool __must_check admin_name_find(struct core *core, struct admin_name *n);
int __must_check admin_name_refuse(const struct admin_name *n, char *text);

/* admin_act.c */
bool admin_acts(const char *req);
int __must_check admin_act(struct daemon *d, const char *req, char *text);

/* admin_set.c */
int __must_check admin_change(struct daemon *d, const char *req, char *text);

#endif /* KVMM_IPC_ADMIN_H */
