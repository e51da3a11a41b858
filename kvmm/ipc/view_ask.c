// SPDX-License-Identifier: Apache-2.0
/*
 * view_ask.c - requests of kvmm-proc, which asks for others
 *
 * Who may connect to the daemon's own view socket sees all and may change
 * limits: root, the user who started the daemon, and the group of kvmm-proc,
 * which nobody else is in.  kvmm-proc carries what any user of the machine does
 * to the mounted files, so it says for whom:
 *
 *   as UID REQUEST	as that user's tenant would be answered; root and the
 *			daemon's own user: everything
 *   set PATH VALUE	what kvctl set does; of a domain's limit also `gpu0 VALUE`
 *   wait PATH TRIGGER	stays, and is told of each time: wait.c
 *
 * An `as` takes rights away and never gives any: there is one at most, and at
 * a tenant's socket, whose rights are less already, there is none.
 *
 * Context: control thread.
 */
#include <stdlib.h>
#include <stdio.h>

#include <kvmm/admin.h>

#include "kvmm/ipc/admin.h"
#include "kvmm/ipc/daemon.h"

/*
 * Cut `PATH VALUE`, or `PATH gpu0 VALUE` as limits of domains are shown.
 * Return: the value, NULL: there is none, or of another pool.
 */
static const char *set_value(char *req)
{
	char *value = strchr(req, ' ');

	if (!value)
		return NULL;
	*value++ = '\0';
	if (strstr(req, "domain/") && !strncmp(value, "gpu0 ", 5))
		value += 5;
	return strchr(value, ' ') ? NULL : value;
}

/* @req: `PATH VALUE`, ours to cut */
static int view_set(struct daemon *d, char *req, struct seq_file *out)
{
	char admin[KV_ADMIN_REQ], text[ADMIN_TEXT];
	const char *value = set_value(req);
	int err = -EINVAL;

	snprintf(text, sizeof(text), "set: want PATH VALUE");
	if (value) {
		err = kv_admin_set_request(req, value, admin, sizeof(admin));
		snprintf(text, sizeof(text), "%.64s: %s", req, err == -EINVAL ?
			 "the value is none" : "cannot be set");
	}
	if (!err)
		err = admin_change(d, admin, text);
	seq_reset(out);
	seq_puts(out, text);
	if (!err)
		seq_putc(out, '\n');
	return err;
}

/* Whose request is it?  Return: 0, or -EINVAL; @req: what follows. */
static int view_as(const struct daemon *d, const char **req, u64 *key)
{
	char *end;
	u64 uid;

	if (**req < '0' || **req > '9')
		return -EINVAL;
	uid = strtoull(*req, &end, 10);
	if (*end != ' ' || uid >= (uid_t)-1)
		return -EINVAL;
	*req = end + 1;
	if (uid && uid != d->setup.own_uid)
		*key = uid;
	return 0;
}

/* As kvmm/proc wants it, which says what is wrong with any other. */
static bool is_printable(const char *req, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (req[i] < ' ' || req[i] > '~')
			return false;
	return true;
}

static int view_refused(int err, const char *why, struct seq_file *out)
{
	seq_reset(out);
	seq_puts(out, why);
	return err;
}

/**
 * view_request() - answer one request of the view sockets
 * @key: of the tenant whose socket it is; PROC_ALL: the daemon's own
 * @req: @len bytes of anything, less than PROC_REQ_MAX
 * @wait: its trigger is set if the connection is to stay, else CORE_NONE
 * @out: takes the text, or after an error one line
 *
 * Return: 0 or a negative errno.
 */
int view_request(struct daemon *d, u64 key, const char *req, size_t len,
		 struct view_wait *wait, struct seq_file *out)
{
	char buf[PROC_REQ_MAX];
	const char *p = buf;

	wait->trigger = CORE_NONE;
	if (!is_printable(req, len))
		return proc_request_as(d->proc, key, req, len, out);
	memcpy(buf, req, len);
	buf[len] = '\0';
	if (!strncmp(p, "as ", 3)) {
		p += 3;
		if (key != PROC_ALL)
			return view_refused(-EPERM, "as: not at a tenant's socket",
					    out);
		if (view_as(d, &p, &key))
			return view_refused(-EINVAL, "as: want UID REQUEST", out);
	}
	if (!strncmp(p, "set ", 4)) {
		if (key != PROC_ALL)
			return view_refused(-EPERM, "set: root and the daemon's own user may",
					    out);
		return view_set(d, buf + (p - buf) + 4, out);
	}
	if (!strncmp(p, "wait ", 5)) {
		wait->key = key;
		return wait_begin(d, p + 5, wait, out);
	}
	return proc_request_as(d->proc, key, p, len - (size_t)(p - buf), out);
}
