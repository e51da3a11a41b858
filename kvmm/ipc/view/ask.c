// SPDX-License-Identifier: Apache-2.0
/*
 * ask.c - requests of kvmm-proc for other users
 *
 * Users that may connect to the daemon's own view socket see everything and may
 * change limits: root, the user that started the daemon, and the group of
 * kvmm-proc, which has no other member.  kvmm-proc carries accesses of any user
 * of the machine to the mounted files, so it names the user:
 *
 *   as UID REQUEST	answered as that user's tenant would be; for root and the
 *			daemon's own user: everything
 *   set PATH VALUE	as kvctl set; of a domain's limit also `gpu0 VALUE`
 *   wait PATH TRIGGER	stays, and gets a line each time: wait.c
 *
 * An `as` takes rights away and never gives any: there is one at most, and at
 * a tenant's socket, which has less rights already, there is none.
 *
 * Context: control thread.
 */
#include <stdlib.h>
#include <stdio.h>

#include <kvmm/admin.h>

#include "kvmm/ipc/view/view.h"

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
static int view_set(struct views *vs, char *req, struct seq_file *out)
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
		err = admin_change(vs->operators, admin, text);
	seq_reset(out);
	seq_puts(out, text);
	if (!err)
		seq_putc(out, '\n');
	return err;
}

/* The user of the request.  Return: 0, or -EINVAL; @req: the rest. */
static int view_as(const struct views *vs, const char **req, u64 *key)
{
	char *end;
	u64 uid;

	if (**req < '0' || **req > '9')
		return -EINVAL;
	uid = strtoull(*req, &end, 10);
	if (*end != ' ' || uid >= (uid_t)-1)
		return -EINVAL;
	*req = end + 1;
	if (uid && uid != vs->setup->own_uid)
		*key = uid;
	return 0;
}

/* Any other request is left to kvmm/proc, which explains the error. */
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
 * view_user() - the user that pays for a request
 * @key: of the socket's tenant; PROC_ALL: the daemon's own socket
 * @req: @len bytes of anything, less than PROC_REQ_MAX
 *
 * Return: its key; PROC_ALL for root, the daemon's own user and a bad request.
 */
u64 view_user(const struct views *vs, u64 key, const char *req, size_t len)
{
	char buf[PROC_REQ_MAX];
	const char *p = buf + 3;

	if (key != PROC_ALL || len < 3 || memcmp(req, "as ", 3))
		return key;
	memcpy(buf, req, len);
	buf[len] = '\0';
	(void)!view_as(vs, &p, &key);
	return key;
}

/**
 * view_request() - answer one request of the view sockets
 * @key: of the socket's tenant; PROC_ALL: the daemon's own socket
 * @req: @len bytes of anything, less than PROC_REQ_MAX
 * @wait: its trigger is set if the connection is to stay, else CORE_NONE
 * @out: takes the text, or after an error one line
 *
 * Return: 0 or a negative errno.
 */
int view_request(struct views *vs, u64 key, const char *req, size_t len,
		 struct view_wait *wait, struct seq_file *out)
{
	char buf[PROC_REQ_MAX];
	const char *p = buf;

	wait->trigger = CORE_NONE;
	if (!is_printable(req, len))
		return proc_request_as(vs->proc, key, req, len, out);
	memcpy(buf, req, len);
	buf[len] = '\0';
	if (!strncmp(p, "as ", 3)) {
		p += 3;
		if (key != PROC_ALL)
			return view_refused(-EPERM, "as: not at a tenant's socket",
					    out);
		if (view_as(vs, &p, &key))
			return view_refused(-EINVAL, "as: want UID REQUEST", out);
	}
	if (!strncmp(p, "set ", 4)) {
		if (key != PROC_ALL)
			return view_refused(-EPERM, "set: root and the daemon's own user may",
					    out);
		return view_set(vs, buf + (p - buf) + 4, out);
	}
	if (!strncmp(p, "wait ", 5)) {
		wait->key = key;
		return wait_begin(vs, p + 5, wait, out);
	}
	return proc_request_as(vs->proc, key, p, len - (size_t)(p - buf), out);
}
