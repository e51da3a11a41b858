/* SPDX-License-Identifier: Apache-2.0 */
/*
 * models.h - the model of a request, and whether it can answer now
 */
#ifndef RUNTIME_SERVER_MODELS_H
#define RUNTIME_SERVER_MODELS_H

#include "runtime/server/service.h"

/* models_find() - the model with this name, @len bytes; NULL: there is none */
struct backend *models_find(const struct site *s, const char *name,
			    size_t len);

/**
 * models_adapter() - the adapter with this name, @len bytes, of any model
 * @b: its model; may be NULL
 *
 * Return: a reference for served_put(), or NULL.
 */
struct served_adapter *models_adapter(const struct site *s, const char *name, size_t len,
				      struct backend **b);

/* models_unknown() - report an unknown model: always -1 */
int models_unknown(const struct site *s, const char *name, size_t len,
		   struct api_error *err);

/* backend_is_loaded() - 0, or -1 with @err: its files are still being read */
int backend_is_loaded(const struct backend *b, struct api_error *err);

/* backend_admits() - 0, or -1 with @err: the model cannot generate now */
int backend_admits(const struct backend *b, struct api_error *err);

/* backend_lost() - report that the GPU failed: always -1 */
int backend_lost(struct api_error *err);

/* backend_gone() - report that there is no daemon: always -1 */
int backend_gone(struct api_error *err);

/**
 * models_route() - the backend of the model that a body names
 * @root:    JSON of the body, of any type
 * @adapter: a reference to the adapter that it names instead, or NULL; with NULL for
 *           @adapter the body must name a model
 *
 * If the body names no model, the only model is meant; with several it is an
 * error.
 *
 * Return: NULL with @err.
 */
struct backend *models_route(const struct site *s, const json_t *root,
			     struct served_adapter **adapter, struct api_error *err);

#endif /* RUNTIME_SERVER_MODELS_H */
