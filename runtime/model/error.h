/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - one line for a person, with the errno for the program
 */
#ifndef RUNTIME_MODEL_ERROR_H
#define RUNTIME_MODEL_ERROR_H

#include "runtime/model/model.h"

/*
 * Names come from untrusted files: keep the printed part short, so that the
 * reason and the remedy after it still fit.
 */
#define MODEL_NAME_FMT	"%.120s"

/**
 * model_fail() - report a failure
 * @err:	receives one printable line; may be NULL
 * @code:	negative errno
 * @fmt:	"FILE: KEY: problem: remedy"
 *
 * Return: @code, so that a check reads `return model_fail(...)`.
 */
int model_fail(struct model_error *err, int code, const char *fmt, ...)
	__printf(3, 4);

/* The same for a failed system call or allocation; the text has strerror(). */
int model_fail_errno(struct model_error *err, int code, const char *path,
		     const char *what);

#endif /* RUNTIME_MODEL_ERROR_H */
