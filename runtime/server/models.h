/* SPDX-License-Identifier: Apache-2.0 */
/*
 * models.h - which model a request is for, and whether it can answer now
 */
#ifndef RUNTIME_SERVER_MODELS_H
#define RUNTIME_SERVER_MODELS_H

#include "runtime/server/service.h"

/* models_find() - the one of this name, @len bytes; NULL: there is none */
struct backend *models_find(const struct site *s, const char *name,
			    size_t len);

/* models_unknown() - say so: always -1 */
int models_unknown(const struct site *s, const char *name, size_t len,
		   struct api_error *err);

/* backend_is_loaded() - 0, or -1 with @err: its files are being read */
int backend_is_loaded(const struct backend *b, struct api_error *err);

/* backend_admits() - 0, or -1 with @err: it cannot generate now */
int backend_admits(const struct backend *b, struct api_error *err);

/* backend_lost() - say that the GPU failed: always -1 */
int backend_lost(struct api_error *err);

/* backend_gone() - say that there is no daemon: always -1 */
int backend_gone(struct api_error *err);

/**
 * models_route() - the one that a body asks for
 * @root: of the body, any JSON
 *
 * Without a name it is the only one there is; among several nothing is guessed.
 *
 * Return: NULL with @err.
 */
struct backend *models_route(const struct site *s, const json_t *root,
			     struct api_error *err);

#endif /* RUNTIME_SERVER_MODELS_H */
