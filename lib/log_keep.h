/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log_keep.h - between log.c and log_keep.c
 */
#ifndef KVMM_LIB_LOG_KEEP_H
#define KVMM_LIB_LOG_KEEP_H

#include <kvmm/log.h>

/* log_keep() - a line was written, or would have been; @text is one line */
void log_keep(enum kv_log_level level, const char *text);

#endif /* KVMM_LIB_LOG_KEEP_H */
