// SPDX-License-Identifier: GPL-2.0-or-later
/* A program for testbed exec to run: its first argument says what it does. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int show_eth0(void)
{
	struct ifaddrs *all, *each;

	if (getifaddrs(&all))
		return 1;
	for (each = all; each; each = each->ifa_next) {
		if (!each->ifa_addr || each->ifa_addr->sa_family != AF_INET || strcmp(each->ifa_name, "eth0"))
			continue;
		printf("%s %s\n", each->ifa_flags & IFF_RUNNING ? "running" : "down",
		       inet_ntoa(((struct sockaddr_in *)each->ifa_addr)->sin_addr));
	}
	return 0;
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";
	const int number = count > 2 ? atoi(words[2]) : 0;

	if (!strcmp(what, "eth0"))
		return show_eth0();
	if (!strcmp(what, "words"))
		for (int i = 0; i < count; i++)
			printf("[%s]", words[i]);
	if (!strcmp(what, "input"))
		printf("%d", getchar());
	if (!strcmp(what, "much"))
		for (int i = 0; i < number; i++)
			printf("%07d\n", i);
	if (!strcmp(what, "both"))
		fputs("to stdout", stdout), fputs("to stderr", stderr);
	fflush(stdout);
	if (!strcmp(what, "sleep"))
		sleep(number);
	if (!strcmp(what, "signal"))
		raise(number);
	if (!strcmp(what, "crash")) {
		FILE *trigger = fopen("/proc/sysrq-trigger", "w");

		fputs("c", trigger);
		fclose(trigger);
	}
	return strcmp(what, "status") ? 0 : number;
}
