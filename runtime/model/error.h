/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - one line for a person, with the errno for the program
 */
#ifndef RUNTIME_MODEL_ERROR_H
#define RUNTIME_MODEL_ERROR_H

#include "runtime/model/model.h"

/*
 * Names come from files that may lie: keep what is printed of them short, so
 * that the reason and the remedy behind them still fit.
 */
#define MODEL_NAME_FMT	"%.120s"

/**
 * model_fail() - state a failure
 * @err:	receives one printable line; may be NULL
 * @code:	negative errno
 * @fmt:	"FILE: KEY: what is wrong: what to do"
 *
 * Return: @code, so that a check reads `return model_fail(...)`.
 */
int model_fail(struct model_error *err, int code, const char *fmt, ...)
	__printf(3, 4);

/* The same for a failed system call or allocation, with strerror() in it. */
int model_fail_errno(struct model_error *err, int code, const char *path,
		     const char *what);

#endif /* RUNTIME_MODEL_ERROR_H */
