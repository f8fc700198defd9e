// A client of others' making talks to the agent: node editor_client.mjs SDK CWD SESSION COMMAND ARGUMENTS…
// It opens the session SESSION, or a new one if that is empty, and prints what it saw as one JSON object.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const [sdk, cwd, loaded, command, ...rest] = process.argv.slice(2);
const acp = await import(sdk);
const agent = spawn(command, rest, { cwd, stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const seen = { updates: [], asked: [], session: loaded, stop: "", listed: [] };

const app = acp
  .client({ name: "tests" })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    seen.asked.push(params.toolCall.title);
    return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
  })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    seen.updates.push(params.update);
  });

await app.connectWith(stream, async (context) => {
  const { session } = acp.methods.agent;
  await context.request(acp.methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
  if (loaded) {
    await context.request(session.load, { sessionId: loaded, cwd, mcpServers: [] });
  } else {
    seen.session = (await context.request(session.new, { cwd, mcpServers: [] })).sessionId;
    const prompt = [{ type: "text", text: "go" }];
    const answer = await context.request(session.prompt, { sessionId: seen.session, prompt });
    seen.stop = answer.stopReason;
  }
  seen.listed = (await context.request(session.list, { cwd })).sessions.map((each) => each.sessionId);
  await context.request(session.close, { sessionId: seen.session });
});
agent.stdin.end();
await new Promise((resolve) => agent.once("exit", resolve));
process.stdout.write(JSON.stringify(seen));
