// SPDX-License-Identifier: Apache-2.0
/*
 * fuzz_view.c - requests on the view socket, to the real files
 *
 * An input is one connection: pieces of bytes, each behind its length.  view.c
 * and kvmm/proc answer as in the daemon, from a core with a domain, a client
 * and sequences in several states.
 *
 * Laws: after any bytes the connection ends when its reader has read or hung up;
 * the answer is `ok BYTES`, a newline and as many bytes, or one line that
 * begins with `error` and a number, with a text.
 */
#include <sys/epoll.h>
#include <sys/socket.h>

/* For struct view and its function; its object is not linked then. */
#include <kvmm/clock.h>

#include "kvmm/ipc/view/view.c"

#include "tests/fuzz/inproc.h"
#include "tests/fuzz/shell.h"

#define PIECES	8u

static struct {
	struct kvmm_daemon_ctl		ctl;
	struct kvmm_seq_status		seqs[INPROC_SEQS];
	struct kvmm_extent_status	extents[INPROC_EXTENTS];
	struct kvmm_table_page		tables[16];
	struct kvmm_event		events[16];
} seg;

static struct client client;

static int source_call(void *arg, void (*fn)(struct core *core, void *fn_arg),
		       void *fn_arg)
{
	return mm_call(&((struct daemon *)arg)->mm, fn, fn_arg);
}

static int source_info(void *arg, u32 id, struct proc_client_info *info)
{
	if (id)
		return -ENOENT;
	*info = (struct proc_client_info){ .pid = 7, .comm = "a\\b" };
	return 0;
}

static int source_swap_area(void *arg, u32 i, struct proc_swap_area *info)
{
	return area_get_info(&inproc->link, i, info);
}

static int source_swap_info(void *arg, struct proc_swap_info *info)
{
	return link_get_info(&inproc->link, info);
}

static void open_some(void)
{
	static struct kvmm_open_res res[8];
	struct kvmm_open_arg open[4];
	struct kvmm_sqe sqe = {
		.op = KVMM_OP_SEQ_OPEN, .nr = 4, .number = 1,
		.arg_len = sizeof(open),
	};
	struct core_req req;
	u32 i;

	memset(open, 0, sizeof(open));
	for (i = 0; i < 4; i++)
		open[i].prompt_len = 20 * i + 1;
	FUZZ_LAW(!core_req_check(inproc->setup.core, 0, &sqe, open, sizeof(open),
				 &req) &&
		 !core_req_execute(inproc->setup.core, kv_now_ns(), 0, &req, res),
		 "nothing was opened");
}

static void setup(void)
{
	struct proc_source src = {
		.call = source_call, .client_info = source_info,
		.swap_area = source_swap_area, .swap_info = source_swap_info,
		.host = &inproc->setup.host.found, .arg = inproc, .backend = "fuzz",
		.socket = "/run/kvmm/attach.sock",
	};
	struct core_bind bind = {
		.ctl = &seg.ctl, .seqs = seg.seqs, .extents = seg.extents,
		.tables = seg.tables, .events = seg.events, .nr_events = 16,
	};
	u8 secret[CORE_SECRET_LEN] = { 0 };
	struct core_attach_info info;
	struct kvmm_attach_req req;

	shell_attach_req(&req, 0);
	memcpy(req.domain, "a b/\n\\x", 8);
	FUZZ_LAW(!core_client_attach(inproc->setup.core, kv_now_ns(), 1, secret, &req,
				     &info), "%s", info.text);
	inproc->clients.by_id[0] = &client;
	core_client_bind(inproc->setup.core, 0, &bind);
	open_some();
	inproc->views.proc = proc_create(&src);
	inproc->operators.proc = inproc->views.proc;
	FUZZ_LAW(inproc->views.proc, "no files");
}

/* ---- the answer ---- */

static struct {
	char	text[1 << 20];
	size_t	len;
} answer;

static void judge_answer(void)
{
	char *end = memchr(answer.text, '\n', answer.len), *after;
	unsigned long bytes;

	if (!answer.len)
		return;
	FUZZ_LAW(end, "an answer of %zu bytes without a line", answer.len);
	for (after = answer.text; after < end; after++)
		FUZZ_LAW(*after >= ' ' && *after <= '~', "byte %02x in a line",
			 (u8)*after);
	*end = '\0';
	if (!strncmp(answer.text, "ok ", 3)) {
		bytes = strtoul(answer.text + 3, &after, 10);
		FUZZ_LAW(after == end && bytes ==
			 answer.len - (size_t)(end + 1 - answer.text),
			 "'%s' and %zu bytes", answer.text, answer.len);
		return;
	}
	FUZZ_LAW(!strncmp(answer.text, "error ", 6) &&
		 strtol(answer.text + 6, &after, 10) > 0 && *after == ' ' &&
		 after[1] && end + 1 == answer.text + answer.len,
		 "'%s'", answer.text);
}

static bool answer_read(int sock)
{
	ssize_t n = recv(sock, answer.text + answer.len,
			 sizeof(answer.text) - 1 - answer.len, MSG_DONTWAIT);

	if (n > 0)
		answer.len += (size_t)n;
	return n > 0;
}

static struct view *view_begin(int sock)
{
	struct view *v = calloc(1, sizeof(*v));

	FUZZ_LAW(v, "no memory");
	v->sock.fd = sock;
	v->sock.fn = view_on_sock;
	v->sock.arg = &inproc->views;
	v->deadline = kv_now_ns() + VIEW_ASK_MS * NSEC_PER_MSEC;
	seq_init(&v->out, PROC_TEXT_MAX);
	list_add_tail(&inproc->clients.readers, &v->reader.node);
	v->reader.key = PROC_ALL;
	view_asker(&inproc->views, 0, KV_RIGHT_all, &v->asker);
	v->wait.trigger = CORE_NONE;
	FUZZ_LAW(!watch_add(&inproc->loop, &v->sock, EPOLLIN), "epoll");
	return v;
}

static u32 readers(void)
{
	return tenant_readers(&inproc->clients, PROC_ALL);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { .p = data, .left = min(size, (size_t)8192) };
	u8 piece[4200];
	struct view *v;
	int sock[2];
	u32 i, n, fds;

	inproc_clients = inproc_domains = 1;
	inproc_begin(setup);
	close(inproc_some_fd(0));
	fds = fuzz_count_fds(0);
	answer.len = 0;
	inproc_pair(SOCK_STREAM, sock);
	v = view_begin(sock[0]);
	for (i = 0; i < PIECES && f.left && readers(); i++) {
		u8 how = fuzz_u8(&f);

		/* All bytes that are left, or a piece; rarely with descriptors. */
		n = how < 128 ? (u32)f.left : fuzz_u8(&f);
		n = min(n, (u32)min(f.left, sizeof(piece)));
		fuzz_bytes(&f, piece, n);
		inproc_send(sock[1], piece, n, how % 128 > 120 ? how % 4 : 0);
		view_on_sock(&inproc->views, &v->sock, EPOLLIN);
	}
	while (readers() && answer_read(sock[1]))
		view_on_sock(&inproc->views, &v->sock, EPOLLOUT);
	while (answer_read(sock[1]))
		;
	close(sock[1]);
	judge_answer();
	/* A reader that sent too little, or waits, has hung up now. */
	if (!list_empty(&inproc->clients.readers))
		view_on_sock(&inproc->views, &v->sock, EPOLLIN);
	FUZZ_LAW(list_empty(&inproc->clients.readers),
		 "a view of nobody is left");
	inproc_check();
	FUZZ_LAW(fuzz_count_fds(0) == fds, "descriptors are left");
	return 0;
}
