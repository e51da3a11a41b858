/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapter_job.h - load and unload adapters while serving
 */
#ifndef RUNTIME_SERVER_ADAPTER_JOB_H
#define RUNTIME_SERVER_ADAPTER_JOB_H

#include <limits.h>

#include "runtime/server/served.h"
#include "runtime/server/service.h"

/**
 * struct adapter_order - the body of a request
 * @dir:     the folder to load from
 * @inplace: take the name from the adapter that has it
 */
struct adapter_order {
	char	name[SERVED_NAME_MAX + 1];
	char	dir[PATH_MAX];
	bool	inplace;
};

/**
 * adapter_order_read() - read a body
 * @root: its JSON, of any type
 * @load: it asks to load, else to unload
 *
 * Return: 0, or -1 with @err.
 */
int __must_check adapter_order_read(const json_t *root, bool load, struct adapter_order *o,
				    struct api_error *err);

/* adapter_job_start() - answer a request to load an adapter, or to unload it */
void adapter_job_start(struct service *svc, struct conn *c, const struct http_request *r,
		       bool load);

#endif /* RUNTIME_SERVER_ADAPTER_JOB_H */
