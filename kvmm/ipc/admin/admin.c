// SPDX-License-Identifier: Apache-2.0
/*
 * admin.c - the admin socket: requests of operators
 *
 * For root, the user that started the daemon, and --admin-group: the mode of the
 * socket keeps others away, and the rights of each peer are checked.  A connection
 * carries one request and stays open until it is answered (conn/answer.c); closing
 * it ends the wait, not the work.  This socket alone accepts a descriptor from
 * outside: the file of a new swap area, which the operator may open and the daemon
 * may not.
 *
 * Context: control thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <kvmm/admin.h>
#include <kvmm/log.h>

#include "kvmm/ipc/admin/admin.h"

#define MAX_ADMINS	16
#define ASK_MS		5000	/* to send the request */
#define DROP_BATCH	1024	/* blocks, between two turns of the mm thread */

/* The operator hung up, or the daemon ends: have other rooms forget @adm. */
static void admin_gone(struct operators *o, struct admin *adm)
{
	area_forget_waiter(o->link, adm);
	upgrade_forget_waiter(o, adm);
	admin_end(adm);
}

/* ---- requests ---- */

static void admin_swapon(struct operators *o, struct admin *adm, char *req, int fd)
{
	u64 bytes;
	s32 priority;
	u32 force;
	int used = 0;

	if (sscanf(req, "swapon %" SCNu64 " %" SCNd32 " %" SCNu32 " %n", &bytes,
		   &priority, &force, &used) != 3 || !used || !req[used] ||
	    priority < 0 || priority > INT16_MAX) {
		admin_finish(adm, -EINVAL, "swapon: want BYTES PRIORITY FORCE PATH");
	} else if (fd < 0) {
		admin_finish(adm, -EBADF, "swapon: want the file with the request");
	} else {
		area_on(o->link, adm, fd, bytes, priority, force != 0, req + used);
		return;
	}
	if (fd >= 0)
		close(fd);
}

static void admin_swapoff(struct operators *o, struct admin *adm, char *req)
{
	u64 ms, dev, ino;
	int used = 0;

	if (sscanf(req, "swapoff %" SCNu64 " %" SCNu64 " %" SCNu64 " %n", &ms,
		   &dev, &ino, &used) != 3 || !used || !req[used])
		admin_finish(adm, -EINVAL, "swapoff: want TIMEOUT_MS DEV INODE PATH");
	else
		area_off(o->link, adm, min(ms, 1000ull * 86400 * 365), dev, ino,
			 req + used);
}

/* The mm thread drops some blocks at a time. */
struct drop {
	const char	*name;
	u32		domain;
	bool		found;
	int		nr;
};

static void drop_some(struct core *core, void *arg)
{
	struct drop *dr = arg;
	struct core_domain_view v;
	int err = core_get_domain(core, dr->domain, &v);

	dr->nr = 0;
	if (err || (*dr->name && strncmp(v.name, dr->name, sizeof(v.name)))) {
		dr->nr = err == -ERANGE ? err : 0;
		return;
	}
	dr->found = true;
	dr->nr = core_drop_caches(core, kv_now_ns(), dr->domain, DROP_BATCH);
}

static void admin_drop_caches(struct operators *o, struct admin *adm, char *req)
{
	struct drop dr = { .name = req + strlen("drop_caches") };
	char text[ADMIN_TEXT];
	u64 nr = 0;

	dr.name += *dr.name == ' ';
	while (!mm_call(o->mm, drop_some, &dr) && dr.nr >= 0) {
		nr += (u32)dr.nr;
		if (dr.nr < DROP_BATCH)
			dr.domain++;
	}
	if (!dr.found && *dr.name) {
		snprintf(text, sizeof(text), "%.64s: no such domain: see kvctl ls domain",
			 dr.name);
		admin_finish(adm, -ENOENT, text);
		return;
	}
	snprintf(text, sizeof(text), "%" PRIu64 " blocks dropped", nr);
	admin_finish(adm, 0, text);
}

static void admin_set(struct operators *o, struct admin *adm, const char *req)
{
	char text[ADMIN_TEXT];
	int err = admin_acts(req) ? admin_act(o, req, text) :
		  !strncmp(req, "domain ", 7) ? admin_limits(o, req, text) :
				    admin_change(o, req, text);

	admin_finish(adm, err, text);
}

/* One message and its descriptor.  Return: bytes, or -errno. */
static ssize_t admin_receive(int sock, char *buf, size_t len, int *fd)
{
	bool cut;
	ssize_t n = sock_recv_fd(sock, buf, len, MSG_DONTWAIT, fd, &cut);

	return n >= 0 && cut ? -EMSGSIZE : n;
}

/* A path goes into lines of the log and into tables: no control characters. */
static bool is_one_line(const char *req, ssize_t n)
{
	ssize_t i;

	for (i = 0; i < n; i++)
		if ((u8)req[i] < ' ' || req[i] == '\x7f')
			return false;
	return true;
}

static void admin_unknown(struct admin *adm)
{
	char text[512];
	size_t len = (size_t)snprintf(text, sizeof(text), "no such request: one of");
	u32 i;

	for (i = 0; i < kv_nr_verbs; i++)
		if (kv_verbs[i].socket == KV_SOCKET_admin && len < sizeof(text))
			len += (size_t)snprintf(text + len, sizeof(text) - len,
						" %s", kv_verbs[i].name);
	admin_finish(adm, -EINVAL, text);
}

/* Is there such a request, and has its user the right to it?  If not, it is answered. */
static bool admin_judge(struct operators *o, struct admin *adm, const char *req)
{
	const struct kv_verb *verb = kv_verb_find(KV_SOCKET_admin, req);
	char text[256];

	/* All but one have arguments. */
	if (!verb || (!strchr(req, ' ') && strcmp(req, "drop_caches")))
		admin_unknown(adm);
	else if (!(adm->rights & verb->right))
		admin_finish(adm, -EPERM, rights_refused(o->sockets, verb->right,
							 text, sizeof(text)));
	else
		return true;
	return false;
}

/* A request with its descriptor, which is taken over; -1: none. */
static void admin_do(struct operators *o, struct admin *adm, char *req, int fd)
{
	if (!strncmp(req, "swapon ", 7)) {
		admin_swapon(o, adm, req, fd);
		return;
	}
	if (!strncmp(req, "upgrade ", 8)) {
		upgrade_request(o, adm, req, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (!strncmp(req, "swapoff ", 8))
		admin_swapoff(o, adm, req);
	else if (!strncmp(req, "drop_caches", 11))
		admin_drop_caches(o, adm, req);
	else
		admin_set(o, adm, req);
}

static void admin_ask(struct operators *o, struct admin *adm)
{
	char req[KV_ADMIN_REQ];
	ssize_t n;
	int fd;

	n = admin_receive(adm->sock.fd, req, sizeof(req) - 1, &fd);
	if (n == -EAGAIN)
		return;
	adm->asked = true;
	req[max(n, (ssize_t)0)] = '\0';
	if (n > 0 && is_one_line(req, n) && admin_judge(o, adm, req)) {
		admin_do(o, adm, req, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (!is_one_line(req, n))
		admin_finish(adm, -EINVAL, "a request of control characters: give a path without them");
	else if (n < 0)
		admin_unknown(adm);
	else if (!n)
		admin_end(adm);
}

static void admin_on_sock(void *arg, struct watch *w, u32 events)
{
	struct operators *o = arg;
	struct admin *adm = container_of(w, struct admin, sock);

	/* After its request an operator only hangs up. */
	if (adm->asked)
		admin_gone(o, adm);
	else
		admin_ask(o, adm);
}

/* ---- connections ---- */

/* The rights of the user that connected; 0: none. */
static u32 admin_rights(const struct operators *o, int sock)
{
	uid_t uid;
	/* The user that the daemon became is no operator, and kvmm-proc changes nothing. */
	const u32 rights = rights_of_peer(o->sockets, sock, &uid) &
			   (KV_RIGHT_read | KV_RIGHT_change);

	if (!rights && log_allowed())
		pr_warn("user %u is refused on the admin socket", (u32)uid);
	return rights;
}

void admin_accept(void *arg, struct watch *w, u32 events)
{
	struct operators *o = arg;
	int sock = conn_accept(o->sockets, w);
	struct admin *adm = NULL;
	u32 rights;

	if (sock < 0)
		return;
	rights = admin_rights(o, sock);
	if (o->admins.nr < MAX_ADMINS && rights)
		adm = admin_new(&o->admins, sock, admin_on_sock, o);
	if (!adm) {
		close(sock);
		return;
	}
	adm->rights = rights;
	adm->deadline = kv_now_ns() + ASK_MS * NSEC_PER_MSEC;
}

/* admin_timers() - end connections without a request.  Return: when to be called next */
u64 admin_timers(struct operators *o, u64 now)
{
	struct list *l, *tmp;
	u64 next = UINT64_MAX;

	admin_free_dead(&o->admins);
	list_for_each(&o->admins.live, l, tmp) {
		struct admin *adm = list_entry(l, struct admin, node);

		if (adm->asked)
			continue;
		if (now >= adm->deadline)
			admin_end(adm);
		else
			next = min(next, adm->deadline);
	}
	return next;
}

void admin_exit_all(struct operators *o)
{
	struct list *l, *tmp;

	list_for_each(&o->admins.live, l, tmp)
		admin_gone(o, list_entry(l, struct admin, node));
	admin_timers(o, 0);
}
