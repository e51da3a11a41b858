// SPDX-License-Identifier: Apache-2.0
/*
 * proc.c - the operator's files: requests in, text out
 *
 * The model is the kernel's /proc: files hold no state, a read makes the text
 * anew.  Any process that may connect to the view socket can send a request, so
 * it is checked first: bounded, printable, one of the verbs below.  A path names
 * a line of one table (tree.c) or no file; no part of it reaches the file
 * system, so `..` has nothing to climb.
 *
 * Two threads take part and share no lock.  The control thread parses, prints
 * and owns every buffer.  When it needs facts, it lends a buffer to a short
 * function on the mm thread and waits (snap.c).  Text is only printed from these
 * copies, so a slow reader, a long table or a full socket costs the mm thread
 * nothing.
 *
 * Invariants:
 *   - an answer is complete or an error; it is never cut silently;
 *   - the records that one call copied are of one instant, and every file that
 *     is not a long table is made from one call;
 *   - bytes that a client chose (names of domains and processes) are escaped,
 *     so they cannot forge a line, a column or a path.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kvmm/proc/internal.h"

struct proc *proc_create(const struct proc_source *src)
{
	struct proc *proc;
	int err;

	proc = calloc(1, sizeof(*proc));
	if (!proc)
		return NULL;

	proc->src = *src;
	proc->key = PROC_ALL;
	err = proc_fetch_config(proc);
	if (err)
		goto out_destroy;

	proc->nr_extents = proc->cfg.pool_bytes / proc->cfg.extent_size;
	err = -ENOMEM;
	proc->domains = calloc(proc->cfg.max_domains, sizeof(*proc->domains));
	proc->lives = calloc(proc->cfg.max_domains, sizeof(*proc->lives));
	proc->clients = calloc(proc->cfg.max_clients, sizeof(*proc->clients));
	proc->tenants = calloc(proc->cfg.max_tenants, sizeof(*proc->tenants));
	proc->seqs = calloc(PROC_SLICE, sizeof(*proc->seqs));
	proc->leases = calloc(PROC_SLICE, sizeof(*proc->leases));
	proc->extents = calloc(PROC_SLICE, sizeof(*proc->extents));
	proc->map = calloc(PROC_SLICE_BLOCKS + core_map_room(&proc->cfg), 1);
	if (!proc->domains || !proc->lives || !proc->clients || !proc->tenants ||
	    !proc->seqs || !proc->leases || !proc->extents || !proc->map)
		goto out_destroy;
	return proc;

out_destroy:
	proc_destroy(proc);
	errno = -err;
	return NULL;
}

void proc_destroy(struct proc *proc)
{
	if (!proc)
		return;
	free(proc->domains);
	free(proc->lives);
	free(proc->clients);
	free(proc->tenants);
	free(proc->seqs);
	free(proc->leases);
	free(proc->extents);
	free(proc->map);
	free(proc);
}

static int request_check(struct proc *proc, struct seq_file *out)
{
	struct core_report rep;
	int err;

	/* The walkers read all tenants' records, and all clients wait for them. */
	if (proc->key != PROC_ALL)
		return -EPERM;

	err = proc_fetch_check(proc, &rep);
	if (err)
		return err;
	if (!rep.nr_faults) {
		seq_puts(out, "ok\n");
		return 0;
	}
	rep.text[sizeof(rep.text) - 1] = '\0';
	seq_printf(out, "%u faults, the first: %s\n", rep.nr_faults, rep.text);
	return 0;
}

/*
 * Copy the request and split it at its first blank.  A request with a character
 * that cannot be printed is refused: no name has one, since names are escaped,
 * and it would spoil the line of the error.
 */
static int request_split(const char *req, size_t len, char *buf,
			 const char **path)
{
	char *blank;
	size_t i;

	if (len && req[len - 1] == '\n')
		len--;
	if (len >= PROC_REQ_MAX)
		return -ENAMETOOLONG;
	for (i = 0; i < len; i++) {
		if (req[i] < ' ' || req[i] > '~')
			return -EINVAL;
	}
	memcpy(buf, req, len);
	buf[len] = '\0';

	*path = buf + len;
	blank = strchr(buf, ' ');
	if (blank) {
		*blank = '\0';
		*path = blank + 1;
		if (!**path)
			return -EINVAL;
	}
	return 0;
}

static int request_run(struct proc *proc, const char *verb, const char *path,
		       struct seq_file *out)
{
	if (!strcmp(verb, "cat") && *path)
		return proc_tree_cat(proc, path, out);
	if (!strcmp(verb, "ls"))
		return proc_tree_ls(proc, path, out);
	if (!strcmp(verb, "stat"))
		return proc_tree_stat(proc, path, out);
	if (!strcmp(verb, "check") && !*path)
		return request_check(proc, out);
	return -EINVAL;
}

/* Print one line for people: the error and the path. */
static void request_explain(int err, const char *full, struct seq_file *out)
{
	char path[128];

	if ((size_t)snprintf(path, sizeof(path), "%s", full) >= sizeof(path))
		memcpy(path + sizeof(path) - 4, "...", 4);

	switch (err) {
	case -ENOENT:
		seq_printf(out, "%s: no such file: run kvctl %s", path,
			   strncmp(path, "client/", 7) ? "ls" : "clients");
		break;
	case -EISDIR:
		seq_printf(out, "%s: is a directory: use ls", path);
		break;
	case -ENOTDIR:
		seq_printf(out, "%s: is not a directory: use cat", path);
		break;
	case -EINVAL:
		seq_puts(out, "want one line: cat PATH, ls [PATH], stat [PATH] or check");
		break;
	case -EPERM:
		seq_puts(out, "check: not at a tenant's socket: ask at the daemon's own");
		break;
	case -ENAMETOOLONG:
		seq_printf(out, "a request has at most %u bytes",
			   PROC_REQ_MAX - 1);
		break;
	case -EOVERFLOW:
		seq_printf(out, "%s: text is longer than %zu bytes",
			   path, out->limit);
		break;
	default:
		seq_printf(out, "%s: %s", *path ? path : "kvmm",
			   strerror(-err));
		break;
	}
}

int proc_request_as(struct proc *proc, u64 key, const char *req, size_t len,
		    struct seq_file *out)
{
	char buf[PROC_REQ_MAX];
	const char *path = "";
	int err;

	proc->key = key;
	seq_reset(out);
	err = request_split(req, len, buf, &path);
	if (!err)
		err = request_run(proc, buf, path, out);
	if (!err)
		err = seq_error(out);
	if (err) {
		seq_reset(out);
		request_explain(err, path, out);
	}
	return err;
}

int proc_request(struct proc *proc, const char *req, size_t len,
		 struct seq_file *out)
{
	return proc_request_as(proc, PROC_ALL, req, len, out);
}

int proc_find_domain(struct proc *proc, const char *name,
		     struct core_domain_view *v)
{
	const struct core_domain_view *d;
	int err;

	proc->key = PROC_ALL;
	err = proc_fetch_node(proc, NEED_DOMAINS);
	if (err)
		return err;
	d = proc_domain_by_name(proc, name, strlen(name));
	if (!d)
		return -ENOENT;
	*v = *d;
	return 0;
}

size_t proc_answer_head(int err, const struct seq_file *out,
			char head[PROC_HEAD_MAX])
{
	const char *why;
	int len;

	if (!err)
		return snprintf(head, PROC_HEAD_MAX, "ok %zu\n", out->count);

	why = seq_text(out);
	len = snprintf(head, PROC_HEAD_MAX, "error %d %s\n", -err,
		       *why ? why : strerror(-err));
	if (len >= PROC_HEAD_MAX) {
		len = PROC_HEAD_MAX - 1;
		memcpy(head + len - 4, "...\n", 4);
	}
	return len;
}
