// SPDX-License-Identifier: Apache-2.0
/*
 * attach.c - one request, one answer: a connection becomes a client
 *
 * The shell judges what concerns the ABI and the tenant, the core judges the
 * domain and its geometry.  Then the two segments are laid out and made, the
 * core is told where to publish, and the answer goes out with three
 * descriptors.  What fails after the core knows the client is undone by
 * hanging up, as for a client that died at that moment.
 *
 * Every refusal is an errno and one line that names the thing and the remedy.
 *
 * A secret keys the hashes of a tenant's prefixes; one is drawn
 * with each attach, and the core keeps the first that it is given for a tenant.
 * It lies in the arena alone; here it is gone when the core has it.
 *
 * Context: control thread, but for the functions handed to mm_call().
 */
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define PAGE		4096u
#define C_HEAD		256u	/* before the entries: struct kvmm_client_ctl */

struct attach_call {
	struct daemon			*d;
	struct client			*c;
	const struct kvmm_attach_req	*req;
	const u8			*secret;
	struct core_quota		quota;
	struct kvmm_attach_rep		*rep;
	struct core_attach_info		info;
	int				err;
};

/* ---- refusing ---- */

/* attach_refuse() - say why not; always @err */
int attach_refuse(struct kvmm_attach_rep *rep, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(rep->text, sizeof(rep->text), fmt, ap);
	va_end(ap);
	rep->status = err;
	return err;
}

/* Its tenant has as many of these as it may. */
static int refuse_quota(struct daemon *d, const struct client *c,
			struct kvmm_attach_rep *rep, u32 nr, const char *what,
			const char *how)
{
	char name[TENANT_TEXT];

	return attach_refuse(rep, -EUSERS, "tenant %s has %u %s, as many as it may (%s): end one",
			     tenant_name(&d->sockets, c->key, name), nr, what, how);
}

/* What it may have at once; this connection is one of them. */
static int attach_check_quota(struct daemon *d, const struct client *c,
			      struct kvmm_attach_rep *rep)
{
	const struct tenant_quota *q = tenant_quota(&d->sockets, c->key);
	const char *how = c->key & TENANT_NAMED ?
			  "its --tenant" : "--tenant-clients, --user-quota";

	if (tenant_clients(d, c->key) >= q->clients)
		return refuse_quota(d, c, rep, q->clients, "clients attached",
				    how);
	if (tenant_conns(d, c->key) > q->conns)
		return refuse_quota(d, c, rep, q->conns, "connections", how);
	if (ghost_count(d, c->key) >= q->conns)
		return refuse_quota(d, c, rep, q->conns,
				    "processes that detached and live on", how);
	return 0;
}

static bool reserved_clear(const struct kvmm_attach_req *req)
{
	u64 any = req->resv0;
	u32 i, j;

	for (i = 0; i < ARRAY_SIZE(req->resv); i++)
		any |= req->resv[i];
	for (i = 0; i < KVMM_MAX_GROUPS; i++)
		for (j = 0; j < ARRAY_SIZE(req->group[i].resv); j++)
			any |= req->group[i].resv[j];
	return !any;
}

/* attach_check_abi() - does the client speak as this kvmm does? */
int attach_check_abi(const struct kvmm_attach_req *req,
		     struct kvmm_attach_rep *rep)
{
	if (req->abi_version != KVMM_ABI_VERSION)
		return attach_refuse(rep, -EPROTONOSUPPORT,
				     "this kvmm speaks ABI version %u, the client %u: install both from one release",
				     KVMM_ABI_VERSION, req->abi_version);
	if (req->layout_hash != KVMM_LAYOUT_HASH)
		return attach_refuse(rep, -EPROTONOSUPPORT,
				     "the client was built with another uapi/kvmm.h: build both from one release");
	return 0;
}

static int attach_check(struct daemon *d, const struct client *c,
			struct kvmm_attach_req *req,
			struct kvmm_attach_rep *rep)
{
	int err = attach_check_abi(req, rep);

	if (err)
		return err;
	if (req->flags || !reserved_clear(req))
		return attach_refuse(rep, -EINVAL,
				     "a flag or a reserved field of the attach request is set: the client is newer than this kvmm");
	if (!memchr(req->domain, '\0', sizeof(req->domain)))
		return attach_refuse(rep, -EINVAL,
				     "the name of the domain does not end: at most %u bytes",
				     KVMM_NAME_LEN - 1);
	if (!req->sq_entries)
		req->sq_entries = SQ_ENTRIES_DEFAULT;
	if (!is_power_of_2(req->sq_entries))
		return attach_refuse(rep, -EINVAL,
				     "%u submission entries are no power of two",
				     req->sq_entries);
	return attach_check_quota(d, c, rep);
}

/* ---- the segments ---- */

static void layout_c(const struct kvmm_attach_req *req,
		     struct kvmm_attach_rep *rep)
{
	rep->sq_entries = min(max(req->sq_entries, SQ_ENTRIES_MIN),
			      SQ_ENTRIES_MAX);
	rep->sq_off = C_HEAD;
	rep->arg_off = rep->sq_off +
		rep->sq_entries * (u32)sizeof(struct kvmm_sqe);
	rep->arg_bytes = ARG_BYTES;
	rep->c_bytes = ALIGN_UP(rep->arg_off + rep->arg_bytes, PAGE);
}

static u32 place(u64 *at, u64 bytes)
{
	u64 off = ALIGN_UP(*at, 64);

	*at = off + bytes;
	return (u32)off;
}

/* Offsets are 32 bits: false when D would be larger than they can say. */
static bool layout_d(const struct daemon *d, const struct core_attach_info *in,
		     struct kvmm_attach_rep *rep)
{
	u64 at = sizeof(struct kvmm_daemon_ctl);

	/* Twice the submissions: answers may wait while new requests come. */
	rep->cq_entries = 2 * rep->sq_entries;
	rep->cq_off = place(&at, (u64)rep->cq_entries *
			    sizeof(struct kvmm_cqe));
	rep->result_bytes = RESULT_BYTES;
	rep->result_off = place(&at, rep->result_bytes);
	rep->event_entries = EVENT_ENTRIES;
	rep->event_off = place(&at, EVENT_ENTRIES * sizeof(struct kvmm_event));
	rep->max_seqs = in->max_seqs;
	rep->seq_off = place(&at, (u64)in->max_seqs *
			     sizeof(struct kvmm_seq_status));
	rep->extent_off = place(&at, (u64)in->nr_extents *
				sizeof(struct kvmm_extent_status));
	rep->nr_tables = in->nr_tables;
	rep->table_off = place(&at, (u64)in->nr_tables *
			       sizeof(struct kvmm_table_page));
	rep->d_bytes = ALIGN_UP(at, PAGE);
	return rep->d_bytes <= UINT32_MAX;
}

static int segments_make(struct daemon *d, struct client *c,
			 const struct kvmm_attach_req *req,
			 const struct core_attach_info *in,
			 struct kvmm_attach_rep *rep)
{
	char name[64];
	int err;

	layout_c(req, rep);
	if (!layout_d(d, in, rep))
		return -E2BIG;
	snprintf(name, sizeof(name), "kvmm-client-%u-c", c->mm.id);
	err = segment_create(&c->c, rep->c_bytes, name, true);
	if (err)
		return err;
	name[strlen(name) - 1] = 'd';
	err = segment_create(&c->d, rep->d_bytes, name, false);
	if (err)
		return err;
	c->mm.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->mm.bell < 0)
		return -errno;
	c->mm.ring.res_end = calloc(rep->cq_entries, sizeof(*c->mm.ring.res_end));
	return c->mm.ring.res_end ? 0 : -ENOMEM;
}

/* @first: index at which the rings begin */
static void ring_build(struct client *c, const struct kvmm_attach_rep *rep,
		       u32 first)
{
	struct client_ring *r = &c->mm.ring;

	r->ctl = (struct kvmm_client_ctl *)c->c.base;
	r->dctl = (struct kvmm_daemon_ctl *)c->d.base;
	r->sqes = (const struct kvmm_sqe *)(c->c.base + rep->sq_off);
	r->args = c->c.base + rep->arg_off;
	r->arg_bytes = rep->arg_bytes;
	r->cqes = (struct kvmm_cqe *)(c->d.base + rep->cq_off);
	r->results = c->d.base + rep->result_off;
	r->result_bytes = rep->result_bytes;
	r->guards[0] = c->c.guard;
	r->guards[1] = c->d.guard;
	c->extents = (const struct kvmm_extent_status *)
		     (c->d.base + rep->extent_off);
	r->dctl->sq_head = first;
	r->dctl->cq_tail = first;
	r->ctl->sq_tail = first;
	r->ctl->cq_head = first;
	r->res_seen = first;
	ring_cons_init(&r->sq, rep->sq_entries, first, &r->dctl->sq_head,
		       &r->ctl->sq_tail);
	ring_prod_init(&r->cq, rep->cq_entries, first, &r->dctl->cq_tail,
		       &r->ctl->cq_head);
}

/* ---- on the mm thread ---- */

static void call_attach(struct core *core, void *arg)
{
	struct attach_call *a = arg;

	a->err = core_client_attach_within(core, clock_ns(), a->c->key,
					   a->secret, &a->quota, a->req,
					   &a->info);
	if (a->err)
		return;
	a->c->mm.id = a->info.client;
	a->c->tenant = a->info.tenant;
	mm_introduce(&a->d->mm, &a->c->mm);
}

static void call_bind(struct core *core, void *arg)
{
	struct attach_call *a = arg;
	const struct kvmm_attach_rep *rep = a->rep;
	char *base = a->c->d.base;
	struct core_bind bind = {
		.ctl		= a->c->mm.ring.dctl,
		.seqs		= (struct kvmm_seq_status *)
				  (base + rep->seq_off),
		.extents	= (struct kvmm_extent_status *)
				  (base + rep->extent_off),
		.tables		= (struct kvmm_table_page *)
				  (base + rep->table_off),
		.events		= (struct kvmm_event *)
				  (base + rep->event_off),
		.nr_events	= rep->event_entries,
	};

	core_client_bind(core, a->c->mm.id, &bind);
	mm_activate(&a->d->mm, &a->c->mm);
}

/* ---- the whole ---- */

static void reply_fill(struct daemon *d, const struct core_attach_info *in,
		       struct kvmm_attach_rep *rep)
{
	rep->memory = d->setup.dev.tag ? KVMM_MEMORY_CUDA : KVMM_MEMORY_HOST;
	rep->device = d->setup.dev.tag;
	rep->daemon_epoch = d->setup.epoch;
	rep->client = in->client;
	rep->domain = in->domain;
	rep->pool_bytes = d->setup.cfg.pool_bytes;
	rep->extent_size = d->setup.cfg.extent_size;
	rep->nr_extents = in->nr_extents;
	rep->unit = in->unit;
	rep->layer_stride = in->layer_stride;
	rep->block_bytes = in->block_bytes;
	rep->span_extents = in->span_extents;
	rep->span_blocks = in->span_blocks;
	rep->span_tail = in->span_tail;
	rep->max_steps = in->max_steps;
	rep->max_batch = CORE_MAX_BATCH;
	rep->step_deadline_ms = d->setup.opt.step_deadline_ms;
	if (getrandom(rep->token, sizeof(rep->token), GRND_NONBLOCK) < 0)
		memset(rep->token, 0, sizeof(rep->token));
}

int client_tables(const struct daemon *d, struct client *c)
{
	u32 words = DIV_ROUND_UP(d->setup.nr_extents, 64);

	c->mm.want = calloc(d->setup.nr_extents, sizeof(*c->mm.want));
	c->mm.dirty = calloc(words, sizeof(*c->mm.dirty));
	c->todo = calloc(words, sizeof(*c->todo));
	c->flying = calloc(words, sizeof(*c->flying));
	return c->mm.want && c->mm.dirty && c->todo && c->flying ? 0 : -ENOMEM;
}

/* Have the core judge the request, with a secret in case the tenant is new. */
static int attach_core(struct attach_call *a)
{
	u8 secret[CORE_SECRET_LEN];
	int err;

	if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
		return attach_refuse(a->rep, -EAGAIN,
				     "the system has no random numbers: try again");
	a->secret = secret;
	err = mm_call(&a->d->mm, call_attach, a);
	a->secret = NULL;
	explicit_bzero(secret, sizeof(secret));
	if (err)
		return attach_refuse(a->rep, err, "kvmm is shutting down");
	if (a->err)
		return attach_refuse(a->rep, a->err, "%s", a->info.text ?
				     a->info.text : strerror(-a->err));
	return 0;
}

/* Everything up to the answer.  Once c->mm.id is set the core knows the client. */
static int attach_build(struct attach_call *a, struct kvmm_attach_req *req)
{
	struct daemon *d = a->d;
	struct client *c = a->c;
	int err = attach_check(d, c, req, a->rep);

	if (err)
		return err;
	if (!tenant_get(d, c->key))
		return attach_refuse(a->rep, -EUSERS,
				     "%u tenants are attached, as many as --max-tenants allows",
				     d->setup.opt.max_tenants);
	err = client_tables(d, c);
	if (err)
		return attach_refuse(a->rep, err, "kvmm has no memory for a client");
	tenant_core_quota(&d->sockets, c->key, &a->quota);
	client_make_room(d);
	err = attach_core(a);
	if (err)
		return err;
	reply_fill(d, &a->info, a->rep);
	if (deposit_wanted(&d->deposit))
		a->rep->features = req->features & KVMM_FEAT_RESUME;
	err = segments_make(d, c, req, &a->info, a->rep);
	if (err)
		return attach_refuse(a->rep, err,
				     "kvmm cannot make the shared memory of a client (%s): ask for fewer sequences, or free memory",
				     strerror(-err));
	ring_build(c, a->rep, 0);
	c->mm.ring.dctl->daemon_epoch = d->setup.epoch;
	c->mm.ring.dctl->state = KVMM_CLIENT_ALIVE;
	return mm_call(&d->mm, call_bind, a);
}

/**
 * attach_again() - new segments for a client that resumes
 * @first: index at which its rings begin
 * @in:    from core_client_resume()
 * @rep:   takes the layout
 *
 * Return: 0 or a negative errno; then it is as if it had hung up.
 */
int attach_again(struct daemon *d, struct client *c, u32 sq_entries, u32 first,
		 const struct core_attach_info *in, struct kvmm_attach_rep *rep)
{
	const struct kvmm_attach_req req = { .sq_entries = sq_entries };
	struct attach_call a = { .d = d, .c = c, .rep = rep };
	int err;

	reply_fill(d, in, rep);
	err = segments_make(d, c, &req, in, rep);
	if (err)
		return err;
	ring_build(c, rep, first);
	c->mm.ring.dctl->daemon_epoch = d->setup.epoch;
	c->mm.ring.dctl->state = KVMM_CLIENT_ALIVE;
	return mm_call(&d->mm, call_bind, &a);
}

/* The name of a domain as it may stand in the log; it ends, that was judged. */
static const char *domain_print(const struct kvmm_attach_req *req, char *name)
{
	u32 i;

	for (i = 0; req->domain[i]; i++)
		name[i] = req->domain[i] > ' ' && req->domain[i] <= '~' ?
			  req->domain[i] : '_';
	name[i] = '\0';
	return name;
}

/* The core knows the client: what did that cost others? */
static void attach_log_dropped(const struct attach_call *a)
{
	char name[KVMM_NAME_LEN];

	if (a->info.dropped_blocks && log_life_allowed())
		pr_info("domain %s: another model identity attached, %u cached blocks dropped",
			domain_print(a->req, name), a->info.dropped_blocks);
}

/* It got less than it asked for. */
static void attach_log_cut(const struct attach_call *a)
{
	char name[KVMM_NAME_LEN], tenant[TENANT_TEXT];

	if (a->info.cut && log_life_allowed())
		pr_info("domain %s: its client asks for more memory.min, memory.low or weight than tenant %s may: kvctl set gives it, or min= and weight= of its quota",
			domain_print(a->req, name),
			tenant_name(&a->d->sockets, a->c->key, tenant));
}

static void attach_log(const struct attach_call *a)
{
	const struct kvmm_attach_rep *rep = a->rep;
	const struct client *c = a->c;
	char name[KVMM_NAME_LEN], tenant[TENANT_TEXT];
	const bool named = c->key & TENANT_NAMED;

	if (log_life_allowed())
		pr_info("client %u attached: %s (pid %d, uid %u), %s%s%sdomain %s",
			c->mm.id, c->info.comm, (int)c->info.pid, c->uid,
			named ? "tenant " : "",
			named ? tenant_name(&a->d->sockets, c->key, tenant) : "",
			named ? ", " : "", domain_print(a->req, name));
	attach_log_cut(a);
	pr_debug("client %u: blocks of %llu bytes, %u in a span of %u extents, tail %.2f %%",
		 c->mm.id, (unsigned long long)rep->block_bytes, rep->span_blocks,
		 rep->span_extents, 100.0 * (double)rep->span_tail /
		 ((double)rep->span_extents * (double)rep->extent_size));
}

/* The core knows it: it counts as attached, however this goes on. */
static void attach_list(struct daemon *d, struct client *c)
{
	c->stage = CLIENT_ATTACHED;
	c->deadline = 0;
	d->nr_greeting--;
	list_del(&c->node);
	list_add_tail(&d->attached, &c->node);
	d->clients[c->mm.id] = c;
	if (!kv_fault(KV_FAULT_deposit_client))
		deposit_put(&d->deposit, HOLD_CLIENT, c->mm.id, c->pidfd.fd, 0);
}

static void attach_count_refused(struct daemon *d, const struct client *c)
{
	struct tenant *t = tenant_find(d, c->key);

	if (t)
		t->refused++;
}

/* The next daemon is to know the client. */
static void attach_keep(struct daemon *d, const struct client *c,
			const struct kvmm_attach_rep *rep)
{
	struct keep_client k = {
		.resumes	= !!(rep->features & KVMM_FEAT_RESUME),
		.key		= c->key,
		.sq_entries	= rep->sq_entries,
		.uid		= c->uid,
		.pid		= c->info.pid,
		.token		= { rep->token[0], rep->token[1] },
	};

	memcpy(k.comm, c->info.comm, sizeof(k.comm));
	keep_client_put(&d->deposit, c->mm.id, &k);
}

/*
 * attach_answer() - tell who only asks what the pool is made of
 *
 * A program that must choose its kernels before it can name its model.  @c is
 * closed and about to be freed.
 */
void attach_answer(struct daemon *d, struct client *c,
		   const struct kvmm_attach_req *req)
{
	struct kvmm_attach_rep rep = {
		.magic		= KVMM_REPLY_MAGIC,
		.abi_version	= KVMM_ABI_VERSION,
		.layout_hash	= KVMM_LAYOUT_HASH,
		.memory		= d->setup.dev.tag ? KVMM_MEMORY_CUDA :
					       KVMM_MEMORY_HOST,
		.device		= d->setup.dev.tag,
	};

	if (!attach_check_abi(req, &rep))
		attach_refuse(&rep, -ECANCELED, "only asked");
	/* It is told if it still listens. */
	(void)!sock_send(c->sock.fd, &rep, sizeof(rep), NULL, 0);
	client_drop(d, c);
}

/**
 * attach_request() - answer the attach request of a connection
 * @req: a copy; judged here for the first time
 *
 * Afterwards @c is attached, or closed and about to be freed.
 */
void attach_request(struct daemon *d, struct client *c,
		    const struct kvmm_attach_req *req)
{
	struct kvmm_attach_req mine = *req;
	struct kvmm_attach_rep rep = {
		.magic		= KVMM_REPLY_MAGIC,
		.abi_version	= KVMM_ABI_VERSION,
		.layout_hash	= KVMM_LAYOUT_HASH,
	};
	struct attach_call a = { .d = d, .c = c, .req = &mine, .rep = &rep };
	int err = attach_build(&a, &mine);
	int fds[3];

	if (c->mm.id != CORE_NONE) {
		attach_keep(d, c, &rep);
		attach_list(d, c);
		attach_log_dropped(&a);
	}
	if (!err) {
		c->pidfd.fn = client_on_pidfd;
		c->pidfd.arg = d;
		err = watch_add(&d->loop, &c->pidfd, EPOLLIN);
	}
	if (err) {
		attach_count_refused(d, c);
		if (log_allowed())
			pr_warn("%s (pid %d, uid %u) is refused: %s",
				c->info.comm, (int)c->info.pid, c->uid,
				rep.text[0] ? rep.text : strerror(-err));
		rep.status = err;
		/* It is told if it still listens. */
		err = sock_send(c->sock.fd, &rep, sizeof(rep), NULL, 0);
		client_abort(d, c);
		return;
	}
	kv_fault_die(KV_FAULT_control_die);
	if (kv_fault(KV_FAULT_forbidden_call))
		syscall(SYS_personality, 0xffffffff);
	fds[0] = c->c.fd;
	fds[1] = c->d.fd;
	fds[2] = c->mm.bell;
	err = sock_send(c->sock.fd, &rep, sizeof(rep), fds, 3);
	segment_close_fd(&c->c);
	segment_close_fd(&c->d);
	if (err) {
		client_hang_up(d, c);
		return;
	}
	keep_client_told(&d->deposit, c->mm.id);
	attach_log(&a);
	extents_send(d, c);
}
