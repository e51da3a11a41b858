// SPDX-License-Identifier: Apache-2.0
/*
 * ask.c - requests of kvmm-proc for other users
 *
 * At the daemon's own view socket root and the user that started the daemon see
 * everything and may set values, and groups have the rights that conn/rights.c
 * gives them.  kvmm-proc carries accesses of any user of the machine to the mounted
 * files, so it names the user, and the process that reads:
 *
 *   as UID[:PID] REQUEST	answered as that user would be here, by its groups
 *			(those of the process); without rights as that user's
 *			tenant would be
 *   set PATH VALUE	as kvctl set; of a domain's limit also `gpu0 VALUE`
 *   wait PATH TRIGGER	stays, and gets a line each time: wait.c
 *
 * An `as` takes rights away and never gives any that its user has not: there is one
 * at most, of kvmm-proc and root.  At a tenant's socket there is none.
 *
 * Context: control thread.
 */
#include <stdlib.h>
#include <stdio.h>

#include <kvmm/admin.h>

#include "kvmm/ipc/view/view.h"

/*
 * Does the file at @path show other pools than the one that @value begins with, as in
 * `gpu0 max`?  A file that is not there shows none.  @out: a text that is overwritten.
 */
static bool other_pool(struct views *vs, const char *path, const char *value,
		       struct seq_file *out)
{
	char req[PROC_REQ_MAX];
	int len = snprintf(req, sizeof(req), "cat %s", path);
	const char *line;

	if (proc_request_as(vs->proc, PROC_ALL, req, (size_t)len, out))
		return false;
	/* A domain with several shards has a line for each of its pools. */
	for (line = seq_text(out); line && *line; line += *line == '\n') {
		if (!strncmp(line, value, strcspn(value, " ") + 1))
			return false;
		line += strcspn(line, "\n");
	}
	return true;
}

/*
 * Cut `PATH VALUE`, or `PATH gpu0 VALUE` as limits of domains are shown.
 * Return: the value; NULL: it is refused for the reason in @text.
 */
static const char *set_value(struct views *vs, char *req, struct seq_file *out, char *text)
{
	char *value = strchr(req, ' ');
	size_t len;
	u32 pool;

	snprintf(text, ADMIN_TEXT, "set: want PATH VALUE");
	if (!value)
		return NULL;
	*value++ = '\0';
	len = strcspn(value, " ");
	if (strstr(req, "domain/") && value[len] && kv_pool_parse(value, len, &pool)) {
		if (other_pool(vs, req, value, out)) {
			snprintf(text, ADMIN_TEXT, "%.64s: the domain is not in %.*s: the file shows its pools",
				 req, (int)len, value);
			return NULL;
		}
		value += len + 1;
	}
	return strchr(value, ' ') ? NULL : value;
}

/* @req: `PATH VALUE`, ours to cut */
static int view_set(struct views *vs, char *req, struct seq_file *out)
{
	char admin[KV_ADMIN_REQ], text[ADMIN_TEXT];
	const char *value = set_value(vs, req, out, text);
	int err = -EINVAL;

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

/*
 * `UID[:PID] REQUEST`: a user, and the process or thread whose groups it has.
 * Return: 0, or -EINVAL; @req: the rest.
 */
static int view_as(const char **req, uid_t *uid, pid_t *pid)
{
	unsigned long long user, process = 0;
	char *end;

	if (**req < '0' || **req > '9')
		return -EINVAL;
	user = strtoull(*req, &end, 10);
	if (*end == ':' && end[1] >= '0' && end[1] <= '9')
		process = strtoull(end + 1, &end, 10);
	if (*end != ' ' || user >= (uid_t)-1 || process > INT32_MAX)
		return -EINVAL;
	*req = end + 1;
	*uid = (uid_t)user;
	*pid = (pid_t)process;
	return 0;
}

static u64 payer_of(const struct views *vs, uid_t uid)
{
	return uid && uid != vs->setup->own_uid ? uid : PROC_ALL;
}

/* view_asker() - a user with @rights at the daemon's own socket */
void view_asker(const struct views *vs, uid_t uid, u32 rights, struct asker *a)
{
	a->rights = rights;
	a->payer = payer_of(vs, uid);
	a->key = rights ? PROC_ALL : uid;
	/* kvmm-proc is bounded as the users that it names. */
	if (rights & KV_RIGHT_others)
		a->payer = PROC_ALL;
}

/* The user that kvmm-proc names: without rights it reads the files of its own tenant. */
static void view_other(const struct views *vs, uid_t uid, pid_t pid, struct asker *a)
{
	view_asker(vs, uid, rights_of_process(vs->sockets, uid, pid), a);
	a->rights |= KV_RIGHT_read;
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

/* The right is missing: the answer. */
static int view_forbidden(const struct views *vs, const struct asker *a,
			  const struct kv_verb *verb, struct seq_file *out)
{
	char text[256];

	seq_reset(out);
	if (verb->right == KV_RIGHT_others)
		seq_puts(out, "as: only kvmm-proc, root and the daemon's own user name another user");
	else if (a->rights & KV_RIGHT_read)
		seq_printf(out, "%s: root and the daemon's own user may, and members of --admin-group",
			   verb->name);
	else
		seq_puts(out, rights_refused(vs->sockets, verb->right, text,
					     sizeof(text)));
	return a->rights ? -EPERM : -EACCES;
}

/**
 * view_user() - the user that pays for a request
 * @asker: the user of the connection
 * @req:   @len bytes of anything, less than PROC_REQ_MAX
 *
 * Return: PROC_ALL for root, the daemon's own user and a bad request.
 */
u64 view_user(const struct views *vs, const struct asker *asker, const char *req,
	      size_t len)
{
	char buf[PROC_REQ_MAX];
	const char *p = buf + 3;
	uid_t uid;
	pid_t pid;

	if (!(asker->rights & KV_RIGHT_others) || len < 3 || memcmp(req, "as ", 3))
		return asker->payer;
	memcpy(buf, req, len);
	buf[len] = '\0';
	return view_as(&p, &uid, &pid) ? asker->payer : payer_of(vs, uid);
}

/* Make @a the user that `as` names; @req: behind it. */
static int view_name(struct views *vs, const char **req, struct asker *a,
		     struct seq_file *out)
{
	uid_t uid;
	pid_t pid;

	*req += strlen("as ");
	if (view_as(req, &uid, &pid))
		return view_refused(-EINVAL, "as: want UID[:PID] REQUEST", out);
	view_other(vs, uid, pid, a);
	return 0;
}

/**
 * view_request() - answer one request of the view sockets
 * @asker: the user of the connection
 * @req:   @len bytes of anything, less than PROC_REQ_MAX
 * @wait: its trigger is set if the connection is to stay, else CORE_NONE
 * @out: takes the text, or after an error one line
 *
 * Return: 0 or a negative errno; -EACCES: the user may ask nothing.
 */
int view_request(struct views *vs, const struct asker *asker, const char *req,
		 size_t len, struct view_wait *wait, struct seq_file *out)
{
	const struct kv_verb *verb;
	struct asker a = *asker;
	char buf[PROC_REQ_MAX];
	const char *p = buf;

	wait->trigger = CORE_NONE;
	if (!is_printable(req, len))
		return proc_request_as(vs->proc, a.key, req, len, out);
	memcpy(buf, req, len);
	buf[len] = '\0';
	verb = kv_verb_find(KV_SOCKET_view, p);
	if (verb && !(a.rights & verb->right))
		return view_forbidden(vs, &a, verb, out);
	if (verb && verb->right == KV_RIGHT_others) {
		if (view_name(vs, &p, &a, out))
			return -EINVAL;
		verb = kv_verb_find(KV_SOCKET_view, p);
	}
	/* There is one `as` at most: the files know none. */
	if (verb && verb->right == KV_RIGHT_change && !(a.rights & verb->right))
		return view_forbidden(vs, &a, verb, out);
	if (!strncmp(p, "set ", 4))
		return view_set(vs, buf + (p - buf) + 4, out);
	if (!strncmp(p, "wait ", 5))
		return wait_begin(vs, &a, p + 5, wait, out);
	return proc_request_as(vs->proc, a.key, p, len - (size_t)(p - buf), out);
}
