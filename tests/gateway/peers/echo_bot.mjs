// An echo bot on grammY, by polling or with a webhook; it says "ready" when it listens.

import { createServer } from "node:http";
import { Bot, webhookCallback } from "grammy";

const { TOKEN, API_ROOT, WAY, SECRET } = process.env;
const bot = new Bot(TOKEN, { client: { apiRoot: API_ROOT } });

bot.command("start", (context) => context.reply("welcome"));
bot.on("callback_query:data", async (context) => {
  await context.answerCallbackQuery({ text: `you chose ${context.callbackQuery.data}` });
  await context.editMessageText(`chosen: ${context.callbackQuery.data}`);
});
bot.on("message:text", (context) => {
  if (context.message.text === "ask") {
    const keys = [[{ text: "Yes", callback_data: "yes" }]];
    return context.reply("?", { reply_markup: { inline_keyboard: keys } });
  }
  return context.reply(context.message.text);
});

if (WAY === "polling") {
  await bot.start({ onStart: () => console.log("ready") });
} else {
  const server = createServer(webhookCallback(bot, "http", { secretToken: SECRET }));
  server.listen(0, "127.0.0.1", async () => {
    const url = `http://127.0.0.1:${server.address().port}/hook`;
    await bot.api.setWebhook(url, { secret_token: SECRET });
    console.log("ready");
  });
}
