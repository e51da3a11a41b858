// SPDX-License-Identifier: Apache-2.0
/*
 * admin.c - the admin socket: requests of operators
 *
 * For root and the user that started the daemon: the socket has mode 0600, and
 * the user of each connection is checked.  A connection carries one request and
 * stays open until it is answered (conn/answer.c); closing it ends the wait,
 * not the work.  This socket alone accepts a descriptor from outside: the file
 * of a new swap area, which the operator may open and the daemon may not.
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

static void admin_swapoff(struct operators *o, struct admin *adm, char *req,
			  int fd)
{
	u64 ms, dev, ino;
	int used = 0;

	if (fd >= 0)
		close(fd);
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

static void admin_drop_caches(struct operators *o, struct admin *adm, char *req,
			      int fd)
{
	struct drop dr = { .name = req + strlen("drop_caches") };
	char text[ADMIN_TEXT];
	u64 nr = 0;

	if (fd >= 0)
		close(fd);
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
	if (!is_one_line(req, n)) {
		if (fd >= 0)
			close(fd);
		admin_finish(adm, -EINVAL, "a request of control characters: give a path without them");
		return;
	}
	if (n > 0 && !strncmp(req, "swapon ", 7)) {
		admin_swapon(o, adm, req, fd);
		return;
	}
	if (n > 0 && !strncmp(req, "swapoff ", 8)) {
		admin_swapoff(o, adm, req, fd);
		return;
	}
	if (n > 0 && (!strcmp(req, "drop_caches") ||
		      !strncmp(req, "drop_caches ", 12))) {
		admin_drop_caches(o, adm, req, fd);
		return;
	}
	if (n > 0 && !strncmp(req, "upgrade ", 8)) {
		upgrade_request(o, adm, req, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (n > 0 && (admin_acts(req) || !strncmp(req, "set ", 4) ||
		      !strncmp(req, "domain ", 7) ||
		      !strncmp(req, "resize ", 7) ||
		      !strncmp(req, "tune ", 5) || !strncmp(req, "trace ", 6)))
		admin_set(o, adm, req);
	else if (n)
		admin_finish(adm, -EINVAL, "no such request: swapon, swapoff, set, domain, resize, tune, trace, drop_caches, evict, pin, unpin, drain, log or upgrade");
	else
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

static bool admin_may(const struct operators *o, int sock)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return false;
	/* The user that the daemon became is no operator. */
	if (!cred.uid || cred.uid == o->setup->own_uid)
		return true;
	if (log_allowed())
		pr_warn("user %u is refused on the admin socket",
			(u32)cred.uid);
	return false;
}

void admin_accept(void *arg, struct watch *w, u32 events)
{
	struct operators *o = arg;
	int sock = conn_accept(o->sockets, w);
	struct admin *adm = NULL;

	if (sock < 0)
		return;
	if (o->admins.nr < MAX_ADMINS && admin_may(o, sock))
		adm = admin_new(&o->admins, sock, admin_on_sock, o);
	if (!adm) {
		close(sock);
		return;
	}
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
