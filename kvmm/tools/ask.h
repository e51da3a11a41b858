/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask.h - interface of ask.c for the operator's programs
 */
#ifndef KVMM_TOOLS_ASK_H
#define KVMM_TOOLS_ASK_H

#include <kvmm/view.h>

/**
 * tool_refused() - the reason why this user cannot connect to a socket
 * @path:    of the socket, which is there
 * @changes: it is the admin socket
 * @text:    @len bytes for one line
 */
void tool_refused(const char *path, bool changes, char *text, size_t len);

/**
 * tool_view_path() - path of the view socket, from the options
 * @socket: value of --socket, or NULL
 * @tenant: value of --tenant, or NULL
 * @path:   takes the path
 *
 * Return: 0, or an exit code after one line on stderr.
 */
int __must_check tool_view_path(const char *socket, const char *tenant,
				char path[KV_VIEW_PATH_MAX]);

/* all.c: the run directories of all daemons of this machine.  Return: their number */
int __must_check tool_daemons(const char *where, char ***dirs);
void tool_daemons_free(char **dirs);

#endif /* KVMM_TOOLS_ASK_H */
