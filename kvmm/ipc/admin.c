// SPDX-License-Identifier: Apache-2.0
/*
 * admin.c - the socket on which operators have things done
 *
 * For root and the user who started the daemon: the socket has mode 0600, and whoever
 * connects is looked at once more.  A connection carries one request, and
 * stays open until it is answered, which may take as long as a disk takes;
 * closing it stops waiting, not what was begun.  Here alone a descriptor is
 * accepted from outside: the file of a new swap area, which the operator has
 * the right to open and the daemon may not have.
 *
 * A connection is freed at the begin of the next round of the control thread,
 * since an event for it may wait in the batch in which it ends.
 *
 * Context: control thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <kvmm/admin.h>
#include <kvmm/log.h>

#include "kvmm/ipc/admin.h"
#include "kvmm/ipc/daemon.h"

#define MAX_ADMINS	16
#define ASK_MS		5000	/* to send the request */
#define DROP_BATCH	1024	/* blocks, between two turns of the mm thread */

/* The operator hung up, or the daemon ends: no room keeps @adm. */
static void admin_gone(struct daemon *d, struct admin *adm)
{
	area_forget_waiter(&d->link, adm);
	upgrade_forget_waiter(d, adm);
	admin_end(adm);
}

/* ---- requests ---- */

static void admin_swapon(struct daemon *d, struct admin *adm, char *req, int fd)
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
		area_on(&d->link, adm, fd, bytes, priority, force != 0, req + used);
		return;
	}
	if (fd >= 0)
		close(fd);
}

static void admin_swapoff(struct daemon *d, struct admin *adm, char *req,
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
		area_off(&d->link, adm, min(ms, 1000ull * 86400 * 365), dev, ino,
			 req + used);
}

/* What the mm thread does for drop_caches, some blocks at a time. */
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
	dr->nr = core_drop_caches(core, clock_ns(), dr->domain, DROP_BATCH);
}

static void admin_drop_caches(struct daemon *d, struct admin *adm, char *req,
			      int fd)
{
	struct drop dr = { .name = req + strlen("drop_caches") };
	char text[ADMIN_TEXT];
	u64 nr = 0;

	if (fd >= 0)
		close(fd);
	dr.name += *dr.name == ' ';
	while (!mm_call(&d->mm, drop_some, &dr) && dr.nr >= 0) {
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

static void admin_set(struct daemon *d, struct admin *adm, const char *req)
{
	char text[ADMIN_TEXT];
	int err = admin_acts(req) ? admin_act(d, req, text) :
				    admin_change(d, req, text);

	admin_finish(adm, err, text);
}

/* One message and its descriptor.  Return: bytes, or -errno. */
static ssize_t admin_receive(int sock, char *buf, size_t len, int *fd)
{
	bool cut;
	ssize_t n = sock_recv_fd(sock, buf, len, MSG_DONTWAIT, fd, &cut);

	return n >= 0 && cut ? -EMSGSIZE : n;
}

/* What it names is told in lines of the log and in tables: one word of them. */
static bool is_one_line(const char *req, ssize_t n)
{
	ssize_t i;

	for (i = 0; i < n; i++)
		if ((u8)req[i] < ' ' || req[i] == '\x7f')
			return false;
	return true;
}

static void admin_ask(struct daemon *d, struct admin *adm)
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
		admin_swapon(d, adm, req, fd);
		return;
	}
	if (n > 0 && !strncmp(req, "swapoff ", 8)) {
		admin_swapoff(d, adm, req, fd);
		return;
	}
	if (n > 0 && (!strcmp(req, "drop_caches") ||
		      !strncmp(req, "drop_caches ", 12))) {
		admin_drop_caches(d, adm, req, fd);
		return;
	}
	if (n > 0 && !strncmp(req, "upgrade ", 8)) {
		upgrade_request(d, adm, req, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (n > 0 && (admin_acts(req) || !strncmp(req, "set ", 4) ||
		      !strncmp(req, "resize ", 7) ||
		      !strncmp(req, "tune ", 5) || !strncmp(req, "trace ", 6)))
		admin_set(d, adm, req);
	else if (n)
		admin_finish(adm, -EINVAL, "no such request: swapon, swapoff, set, resize, tune, trace, drop_caches, evict, pin, unpin, drain, log or upgrade");
	else
		admin_end(adm);
}

static void admin_on_sock(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	struct admin *adm = container_of(w, struct admin, sock);

	/* Nothing follows a request but the end of the socket. */
	if (adm->asked)
		admin_gone(d, adm);
	else
		admin_ask(d, adm);
}

/* ---- connections ---- */

static bool admin_may(const struct daemon *d, int sock)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return false;
	/* Not the user that it became: kvmm's programs are no operators. */
	if (!cred.uid || cred.uid == d->setup.own_uid)
		return true;
	if (log_allowed())
		pr_warn("user %u is refused on the admin socket",
			(u32)cred.uid);
	return false;
}

void admin_accept(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	int sock = conn_accept(&d->sockets, w);
	struct admin *adm = NULL;

	if (sock < 0)
		return;
	if (d->admins.nr < MAX_ADMINS && admin_may(d, sock))
		adm = admin_new(&d->admins, sock, admin_on_sock, d);
	if (!adm) {
		close(sock);
		return;
	}
	adm->deadline = clock_ns() + ASK_MS * NSEC_PER_MSEC;
}

/* Free the dead, end the mute.  Return: when to be called next. */
u64 admin_timers(struct daemon *d, u64 now)
{
	struct list *l, *tmp;
	u64 next = UINT64_MAX;

	admin_free_dead(&d->admins);
	list_for_each(&d->admins.live, l, tmp) {
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

void admin_exit_all(struct daemon *d)
{
	struct list *l, *tmp;

	list_for_each(&d->admins.live, l, tmp)
		admin_gone(d, list_entry(l, struct admin, node));
	admin_timers(d, 0);
}
