/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_keep.h - interface of log_keep.c for log.c
 */
#ifndef KVMM_LIB_LOG_KEEP_H
#define KVMM_LIB_LOG_KEEP_H

#include <kvmm/log.h>

/* log_keep() - keep @text, one line, whether it is written to stderr or lost */
void log_keep(enum kv_log_level level, const char *text);

#endif /* KVMM_LIB_LOG_KEEP_H */
