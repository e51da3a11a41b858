/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_form.h - interface of log_form.c for log.c
 */
#ifndef KVMM_LIB_LOG_FORM_H
#define KVMM_LIB_LOG_FORM_H

#include <kvmm/log.h>

/* Longest line: a message of KV_LOG_LINE_MAX bytes, most of them plain. */
#define LOG_FORM_MAX	(3 * KV_LOG_LINE_MAX)

#define LOG_FORM_TIME	32

/**
 * log_form_time() - write a time: 2026-11-24T09:14:02.118Z
 * @out:     LOG_FORM_TIME bytes
 * @seconds: since 1970, in UTC
 *
 * Return: its characters.
 */
int log_form_time(char *out, u64 seconds, u32 ms);

/* log_form_choose() - the format that KV_LOG_auto means for stderr */
enum kv_log_format log_form_choose(void);

/**
 * log_form() - write a line in the format @form
 * @out:  LOG_FORM_MAX bytes; not NUL-terminated
 * @more: further members in JSON, or ""
 * @text: the message, which is cut if the line would be longer
 *
 * Context: any thread, also one without any file of the system.
 * Return: its bytes, with the newline.
 */
size_t log_form(char *out, enum kv_log_format form, enum kv_log_level level,
		const char *program, const char *more, const char *text);

#endif /* KVMM_LIB_LOG_FORM_H */
