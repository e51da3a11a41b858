// SPDX-License-Identifier: Apache-2.0
/*
 * resume.c - clients of the last daemon come back
 *
 * The connection of a client ended with the daemon.  The client connects again
 * and names its attachment: epoch, number, and the token of its attach.  It
 * must be the same process, of the same user.  Then it gets new segments, with
 * rings that begin where the old ones ended, and goes on: its sequences, its
 * open steps and the extents that it has mapped are as they were, unless the
 * answer says that the arena had to be salvaged.
 *
 * Until then it is AWAY: the core keeps its memory, and a step of it that is
 * open stays open.  If the process ends meanwhile its pidfd says so, as ever.
 * A client that does not come back within --resume-ms is killed, since it may
 * still write to memory that it has mapped; unless the last daemon died before
 * it answered the attach.  A client that cannot come back, because it never
 * asked for KVMM_FEAT_RESUME, counts as one that hung up.
 *
 * Context: control thread, but for the functions handed to mm_call().
 */
#include <stdio.h>
#include <sys/epoll.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/clients/clients.h"

#define STATE_DETACHED	2	/* core_client_view.state, as in proc/client.c */

struct resume_call {
	struct client			*c;
	const struct kvmm_attach_req	*req;
	struct core_attach_info		info;
	u64				committed;
	u32				away;
	int				err;
};

/* ---- clients that are away ---- */

static void away_begin(struct clients *cs, struct client *c)
{
	const struct keep_client *k = &cs->deposit->keep->client[c->mm.id];
	struct core_client_view v;

	if (core_get_client(cs->setup->core, c->mm.id, &v))
		return;
	c->tenant = v.tenant;
	if (v.away && k->resumes) {
		c->stage = CLIENT_AWAY;
		c->deadline = kv_now_ns() + cs->setup->opt.resume_ms * NSEC_PER_MSEC;
	} else if (v.away) {
		c->stage = CLIENT_HUNG_UP;
		core_client_dead(cs->setup->core, kv_now_ns(), c->mm.id);
	} else if (v.state == STATE_DETACHED) {
		c->stage = CLIENT_LINGERING;
		c->deadline = kv_now_ns() + LINGER_MS * NSEC_PER_MSEC;
	} else {
		c->stage = CLIENT_HUNG_UP;
	}
}

/**
 * resume_await() - a client of the last daemon that may come back
 * @id:    the core's
 * @pidfd: of its process, taken over
 *
 * Context: before the mm thread runs.
 */
int resume_await(struct clients *cs, u32 id, int pidfd)
{
	const struct keep_client *k = &cs->deposit->keep->client[id];
	struct client *c = client_alloc(-1);

	if (!c) {
		close(pidfd);
		return -ENOMEM;
	}
	c->mm.id = id;
	c->pidfd.fd = pidfd;
	c->mm.pidfd = pidfd;
	c->pidfd.fn = client_on_pidfd;
	c->pidfd.arg = cs;
	c->uid = k->uid;
	c->key = k->key;
	/* It stays with its tenant, if that --tenant is still there. */
	if ((c->key & TENANT_NAMED) && (u32)c->key >= cs->sockets->nr_doors)
		c->key = c->uid;
	if (!tenant_get(cs, c->key))
		pr_debug("client %u: there is no place for its tenant", id);
	c->info.pid = k->pid;
	c->info.uid = k->uid;
	memcpy(c->info.comm, k->comm, sizeof(c->info.comm));
	c->info.comm[sizeof(c->info.comm) - 1] = '\0';
	list_add_tail(&cs->attached, &c->node);
	cs->by_id[id] = c;
	mm_introduce(cs->mm, &c->mm);
	if (client_tables(cs, c))
		return -ENOMEM;
	away_begin(cs, c);
	return watch_add(cs->loop, &c->pidfd, EPOLLIN);
}

/**
 * resume_give_up() - a client did not come back in time
 *
 * It may still have memory mapped, so it is killed.  A client that never got
 * the answer to its attach has none, and may have attached anew.
 */
void resume_give_up(struct clients *cs, struct client *c)
{
	int err;

	if (cs->deposit->keep->client[c->mm.id].untold) {
		pr_info("client %u (%s, pid %d) had no answer to its attach, and is no more",
			c->mm.id, c->info.comm, (int)c->info.pid);
		client_abort(cs, c);
		return;
	}
	pr_warn("client %u (%s, pid %d) did not come back in %u ms (--resume-ms): killed",
		c->mm.id, c->info.comm, (int)c->info.pid, cs->setup->opt.resume_ms);
	err = pidfd_kill(c->pidfd.fd);
	if (err && err != -ESRCH)
		pr_warn("client %u cannot be killed: %s", c->mm.id,
			strerror(-err));
	client_hang_up(cs, c);
}

/* ---- judging ---- */

/* All bits are compared, so the time does not tell where they differ. */
static bool token_is(const __u64 *a, const __u64 *b)
{
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]));
}

/* Judge the form of the request. */
static int check_form(const struct clients *cs, const struct kvmm_attach_req *req,
		      struct kvmm_attach_rep *rep)
{
	int err = attach_check_abi(req, rep);

	if (err)
		return err;
	if (!deposit_wanted(cs->deposit))
		return attach_refuse(rep, -EOPNOTSUPP,
				     "this kvmm resumes no attachment: attach anew");
	if (req->flags != KVMM_ATTACH_RESUME || req->pool ||
	    req->shard || req->leader || req->resv)
		return attach_refuse(rep, -EINVAL,
				     "a flag or a reserved field of the attach request is set: the client is newer than this kvmm");
	if (req->resume_epoch != cs->setup->epoch)
		return attach_refuse(rep, -ESTALE,
				     "that attachment was to another daemon, whose memory is gone: attach anew");
	return 0;
}

/*
 * Find the client by its number.  A process without the token does not learn
 * which clients there are.
 */
static int check_name(const struct clients *cs, const struct client *who,
		      const struct kvmm_attach_req *req, struct client **found,
		      struct kvmm_attach_rep *rep)
{
	const struct keep_client *k;
	struct client *c = NULL;

	if (req->resume_client < cs->setup->cfg.max_clients)
		c = cs->by_id[req->resume_client];
	k = c ? &cs->deposit->keep->client[c->mm.id] : NULL;
	if (!c || !k->valid || c->uid != who->uid || c->key != who->key ||
	    !token_is(k->token, req->resume_token))
		return attach_refuse(rep, -ENOENT,
				     "user %u has no such attachment: attach anew",
				     who->uid);
	if (c->info.pid != who->info.pid)
		return attach_refuse(rep, -EPERM,
				     "that attachment is process %d's: attach anew",
				     (int)c->info.pid);
	if (c->stage == CLIENT_ATTACHED)
		return attach_refuse(rep, -EALREADY,
				     "client %u is attached: there is nothing to resume",
				     c->mm.id);
	if (c->stage != CLIENT_AWAY)
		return attach_refuse(rep, -ESTALE,
				     "client %u has ended: attach anew", c->mm.id);
	*found = c;
	return 0;
}

/* ---- resuming ---- */

static void call_resume(struct core *core, void *arg)
{
	struct resume_call *r = arg;
	struct core_client_view v;

	/* One of several adoptions since may have salvaged. */
	if (!core_get_client(core, r->c->mm.id, &v))
		r->away = v.away;
	r->err = core_client_resume(core, kv_now_ns(), r->c->mm.id,
				    r->req->resume_seen, &r->info,
				    &r->committed);
}

/* The core has it back: new segments, rings that go on. */
static int resume_build(struct clients *cs, struct client *c,
			const struct kvmm_attach_req *req,
			struct kvmm_attach_rep *rep)
{
	const struct keep_client *k = &cs->deposit->keep->client[c->mm.id];
	struct resume_call r = { .c = c, .req = req };
	u32 first;
	int err;

	err = mm_call(cs->mm, call_resume, &r);
	if (err)
		return attach_refuse(rep, err, "kvmm is shutting down");
	if (r.err)
		return attach_refuse(rep, r.err, r.err == -EPROTO ?
				     "client %u saw request %llu completed, which never was" :
				     "client %u cannot be resumed after request %llu",
				     c->mm.id, (unsigned long long)req->resume_seen);
	/* One at most took effect without the tail being moved. */
	first = req->resume_index + (r.committed > req->resume_seen);
	err = rings_make(cs, c, k->sq_entries, first, &r.info, rep);
	if (!err)
		err = rings_start(cs, c, rep);
	if (err)
		return attach_refuse(rep, err,
				     "kvmm cannot make the shared memory of a client (%s)",
				     strerror(-err));
	rep->features = KVMM_FEAT_RESUME;
	memcpy(rep->token, k->token, sizeof(rep->token));
	rep->committed = r.committed;
	rep->ring_index = first;
	rep->resumed = r.away;
	return 0;
}

/* The connection of @from is that of @c now. */
static void resume_connect(struct clients *cs, struct client *c,
			   struct client *from)
{
	c->sock.fd = from->sock.fd;
	c->sock.fn = from->sock.fn;
	c->sock.arg = from->sock.arg;
	from->sock.fd = -1;
	from->sock.fn = NULL;
	c->stage = CLIENT_ATTACHED;
	c->deadline = 0;
	watch_events(cs->loop, &c->sock, EPOLLIN | EPOLLRDHUP);
}

static void resume_refused(struct clients *cs, struct client *who,
			   const struct kvmm_attach_rep *rep)
{
	if (log_allowed())
		pr_warn("%s (pid %d, uid %u) is not resumed: %s",
			who->info.comm, (int)who->info.pid, who->uid,
			rep->text);
	/* The process gets the answer if it still listens. */
	(void)!sock_send(who->sock.fd, rep, sizeof(*rep), NULL, 0);
	client_drop(cs, who);
}

/**
 * resume_request() - answer a connection that wants to be an old client again
 * @who: the connection; freed after this round
 * @req: a copy; judged here for the first time
 */
void resume_request(struct clients *cs, struct client *who,
		    const struct kvmm_attach_req *req)
{
	struct kvmm_attach_rep rep = {
		.magic		= KVMM_REPLY_MAGIC,
		.abi_version	= KVMM_ABI_VERSION,
		.layout_hash	= KVMM_LAYOUT_HASH,
	};
	struct client *c = NULL;
	int err = check_form(cs, req, &rep);

	if (!err)
		err = check_name(cs, who, req, &c, &rep);
	if (!err)
		err = resume_build(cs, c, req, &rep);
	if (err) {
		resume_refused(cs, who, &rep);
		/* The core has resumed it, but it cannot be served. */
		if (c && c->mm.ring.dctl)
			client_hang_up(cs, c);
		return;
	}
	kv_fault_die(KV_FAULT_resume_die);
	resume_connect(cs, c, who);
	client_drop(cs, who);
	err = rings_send(c, &rep);
	if (err) {
		client_hang_up(cs, c);
		return;
	}
	keep_client_told(cs->deposit, c->mm.id);
	if (log_life_allowed())
		pr_info("client %u resumed: %s (pid %d)", c->mm.id, c->info.comm,
			(int)c->info.pid);
	extents_send(cs, c);
}
