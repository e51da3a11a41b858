/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.h - what the operator's programs share: where the daemon is
 */
#ifndef KVMM_TOOLS_ASK_H
#define KVMM_TOOLS_ASK_H

#include <kvmm/view.h>

/**
 * tool_view_path() - the view socket that the options name
 * @socket: of --socket, or NULL
 * @tenant: of --tenant, or NULL
 * @path:   takes it
 *
 * Return: 0, or an exit code after one line on stderr.
 */
int __must_check tool_view_path(const char *socket, const char *tenant,
				char path[KV_VIEW_PATH_MAX]);

#endif /* KVMM_TOOLS_ASK_H */
