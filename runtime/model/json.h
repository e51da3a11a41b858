/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - read the JSON files of a checkpoint key by key, with good errors
 */
#ifndef RUNTIME_MODEL_JSON_H
#define RUNTIME_MODEL_JSON_H

#include <jansson.h>

#include "runtime/model/error.h"

/**
 * struct mj_file - one open JSON file
 * @path:	for messages
 * @root:	its top object
 * @seen:	keys of @root that a getter has read or mj_note() has noted
 * @names:	keys of @root -> names for messages, where they differ; NULL: nowhere
 * @err:	where failures are reported
 * @ret:	the first failure of any getter, 0 while there is none
 *
 * Getters do nothing once @ret is set, so a reader gets all its keys and checks
 * @ret once.
 */
struct mj_file {
	char			*path;
	json_t			*root;
	json_t			*seen;
	json_t			*names;
	struct model_error	*err;
	int			ret;
};

/**
 * mj_open() - read a file that holds one JSON object
 * @f:		set up for getters
 * @dir:	folder
 * @name:	file in it
 * @flags:	jansson's, beside JSON_REJECT_DUPLICATES
 * @err:	receives this and every later failure
 *
 * Return: 0; -ENOENT; -EINVAL if it is no object or not JSON; -ENOMEM; the
 * error of open() or read().  Call mj_close() in every case.
 */
int __must_check mj_open(struct mj_file *f, const char *dir, const char *name,
			 size_t flags, struct model_error *err);
void mj_close(struct mj_file *f);

/*
 * The most values that a text may hold, keys not counted.  It bounds the memory
 * and time of parsing for texts of any size: half a gigabyte at worst, and some
 * 300,000 tensors in one file, far more than any model has.
 */
#define MJ_MAX_VALUES	(4u << 20)

/* Fail about one key: "FILE: KEY: why".  The first failure is kept. */
int mj_fail(struct mj_file *f, int code, const char *key, const char *fmt, ...)
	__printf(4, 5);

/* Does the top object have the key, and is it not null? */
bool mj_has(struct mj_file *f, const char *key);

/* The value in the top object, or NULL if it is missing or null. */
json_t *mj_top(struct mj_file *f, const char *key);

/* Note a key of the top object as known. */
void mj_note(struct mj_file *f, const char *key);

/* Call @fn for keys of the top object that were not read and are not null. */
void mj_each_unseen(struct mj_file *f,
		    void (*fn)(struct mj_file *f, const char *key, json_t *v,
			       void *arg), void *arg);

/* The value in @obj, or NULL if it is missing or null. */
json_t *mj_get(const json_t *obj, const char *key);

/*
 * Getters.  A missing or null key leaves *out alone (the default); with `need_`
 * it is a failure.  A value of the wrong type or outside the range is always a
 * failure.  Whole numbers may be written as reals ("1e30" and digits beyond 64
 * bits read as reals); a number with a fraction is no whole number.
 */
void mj_u32(struct mj_file *f, const json_t *obj, const char *key, u32 lo,
	    u32 hi, u32 *out);
void mj_need_u32(struct mj_file *f, const json_t *obj, const char *key, u32 lo,
		 u32 hi, u32 *out);
void mj_real(struct mj_file *f, const json_t *obj, const char *key, double lo,
	     double hi, double *out);
void mj_need_real(struct mj_file *f, const json_t *obj, const char *key,
		  double lo, double hi, double *out);
void mj_bool(struct mj_file *f, const json_t *obj, const char *key, bool *out);

/* The string, or NULL if missing or null. */
const char *mj_str(struct mj_file *f, const json_t *obj, const char *key);

#endif /* RUNTIME_MODEL_JSON_H */
