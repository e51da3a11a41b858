/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - reading JSON files of a checkpoint, key by key, with good errors
 */
#ifndef RUNTIME_MODEL_JSON_H
#define RUNTIME_MODEL_JSON_H

#include <jansson.h>

#include "runtime/model/error.h"

/**
 * struct mj_file - one open JSON file
 * @path:	for messages
 * @root:	its top object
 * @seen:	keys of @root that a getter or mj_note() was asked for
 * @err:	where failures are told
 * @ret:	the first failure of any getter, 0 while there is none
 *
 * Getters do nothing once @ret is set, so a reader asks for all it needs and
 * looks at @ret once.
 */
struct mj_file {
	char			*path;
	json_t			*root;
	json_t			*seen;
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
 * error of open() or read().  mj_close() is due in every case.
 */
int __must_check mj_open(struct mj_file *f, const char *dir, const char *name,
			 size_t flags, struct model_error *err);
void mj_close(struct mj_file *f);

/*
 * The most values that a text may hold, keys not counted.  It bounds the memory
 * and time that parsing takes, whatever the size of the text: half a gigabyte
 * at worst, and some 300,000 tensors in one file, far more than any has.
 */
#define MJ_MAX_VALUES	(4u << 20)

/* A failure about one key: "FILE: KEY: why".  Keeps the first one. */
int mj_fail(struct mj_file *f, int code, const char *key, const char *fmt, ...)
	__printf(4, 5);

/* Whether the top object has the key, and it is not null. */
bool mj_has(struct mj_file *f, const char *key);

/* The value from the top object, or NULL if it is missing or null. */
json_t *mj_top(struct mj_file *f, const char *key);

/* The key of the top object is known. */
void mj_note(struct mj_file *f, const char *key);

/* Call @fn for keys of the top object that nobody asked for and not null. */
void mj_each_unseen(struct mj_file *f,
		    void (*fn)(struct mj_file *f, const char *key, json_t *v,
			       void *arg), void *arg);

/* The value from @obj, or NULL if it is missing or null. */
json_t *mj_get(const json_t *obj, const char *key);

/*
 * Getters.  A missing or null key leaves *out alone (the default), unless
 * `need_`: then it is a failure.  A value of the wrong type or outside the
 * range always is.  Whole numbers may be written as reals ("1e30" and digits
 * beyond 64 bits read as reals); what has a fraction is no whole number.
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

/* The string, NULL if missing or null. */
const char *mj_str(struct mj_file *f, const json_t *obj, const char *key);

#endif /* RUNTIME_MODEL_JSON_H */
